"""Messages of a simulated cluster by name: a dead letter is another message than the one that died.

A publisher's message is named mN. As a dead letter it is named mN/qA/qB: it died in qA, then in qB.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import decode_properties

_NUMBER_BYTES: Final = 4
_SEPARATOR: Final = "/"


class Death(NamedTuple):
    """A message left `queue` (its name, without a birth) for `reason`."""

    queue: str
    reason: str


def deaths_of(properties: bytes) -> tuple[Death, ...]:
    """The deaths of a message, the first one first."""
    headers = decode_properties(properties).headers if len(properties) > 0 else None
    found = to_python(decode_table(headers)).get("x-death") if headers else None
    if found is None:
        return ()
    assert isinstance(found, list)
    # The latest death stands in front; each death reverses the order of those before it.
    deaths: list[Death] = []
    while found:
        deaths.insert(0, Death(found[0]["queue"], found[0]["reason"]))
        found = found[:0:-1]
    return tuple(deaths)


def message_name(properties: bytes, body: bytes) -> str:
    """The name of a message; its body was made by `Recording.next_body`."""
    number = int.from_bytes(body[:_NUMBER_BYTES], "big")
    return _SEPARATOR.join([f"m{number}", *(death.queue for death in deaths_of(properties))])


def letter_name(message: str, queue: str) -> str:
    """The name under which the dead letter of a message from `queue` is recorded."""
    return f"{message}{_SEPARATOR}{queue}"


def is_letter(message: str) -> bool:
    """Whether the name is that of a dead letter."""
    return _SEPARATOR in message


def origin_of(message: str) -> str:
    """The name under which the message was published."""
    return message.partition(_SEPARATOR)[0]
