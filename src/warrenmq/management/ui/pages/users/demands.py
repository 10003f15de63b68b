"""The rights that an operation needs, and whether a user's permissions give them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import compiled

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
# Rights look the default exchange up under this name.
_DEFAULT_EXCHANGE: Final = "amq.default"


@dataclass(frozen=True)
class Operation:
    """An operation of AMQP on an object of `kind`.

    `other`: a further exchange that it names, as the form calls it, "" if none. `demands`: pairs of
    a right and of whose it is, the object's or the other's; those in `if_other` are needed only if
    the other is named. `topic`: the exchange whose topic permissions count, with the right.
    """

    name: str
    kind: str
    demands: tuple[tuple[str, str], ...]
    other: str = ""
    if_other: tuple[tuple[str, str], ...] = ()
    topic: tuple[str, str] | None = None


@dataclass(frozen=True)
class Answer:
    """One right at one name: `pattern` of the permissions, and whether it gives the right."""

    right: str
    what: str
    pattern: str
    is_given: bool


_OBJECT: Final = "object"
_OTHER: Final = "other"
_BIND: Final = (("write", _OBJECT), ("read", _OTHER))
_READ: Final = (("read", _OBJECT),)
_CONFIGURE: Final = (("configure", _OBJECT),)
_WITH_OTHER: Final = (("read", _OBJECT), ("write", _OTHER))
_SOURCE: Final = "Source exchange"

OPERATIONS: Final = (
    Operation("basic.publish", EXCHANGE, (("write", _OBJECT),), topic=("write", _OBJECT)),
    Operation("basic.consume", QUEUE, _READ),
    Operation("basic.get", QUEUE, _READ),
    Operation("queue.declare", QUEUE, _CONFIGURE, "Dead letter exchange, if any", _WITH_OTHER),
    Operation("queue.delete", QUEUE, _CONFIGURE),
    Operation("queue.purge", QUEUE, _READ),
    Operation("queue.bind", QUEUE, _BIND, _SOURCE, topic=("read", _OTHER)),
    Operation("queue.unbind", QUEUE, _BIND, _SOURCE, topic=("read", _OTHER)),
    Operation("exchange.declare", EXCHANGE, _CONFIGURE, "Alternate exchange, if any", _WITH_OTHER),
    Operation("exchange.delete", EXCHANGE, _CONFIGURE),
    Operation("exchange.bind", EXCHANGE, _BIND, _SOURCE, topic=("read", _OTHER)),
    Operation("exchange.unbind", EXCHANGE, _BIND, _SOURCE, topic=("read", _OTHER)),
)


def answers(
    operation: Operation, permission: dict[str, Any], name: str, other: str
) -> Iterator[Answer]:
    """The rights that `operation` needs, by the `permission` of a user in a vhost.

    `name` is the object's and `other` that of the further exchange.
    """
    demands = operation.demands + (operation.if_other if other else ())
    for right, whose in demands:
        kind, of = (operation.kind, name) if whose == _OBJECT else (EXCHANGE, other)
        looked_up = _DEFAULT_EXCHANGE if kind == EXCHANGE and not of else of
        pattern = permission[right]
        yield Answer(right, f"{kind} '{looked_up}'", pattern, covers(pattern, looked_up))


def topic_exchange(operation: Operation, name: str, other: str) -> str:
    """The exchange whose topic permissions count; "" if the operation asks for none."""
    if operation.topic is None:
        return ""
    return name if operation.topic[1] == _OBJECT else other


def topic_answer(
    operation: Operation, permissions: Sequence[dict[str, Any]], exchange: str, key: str
) -> Answer | None:
    """The right at a topic exchange for a routing key; None if no permission limits its keys.

    `permissions` are a user's topic permissions in the vhost.
    """
    assert operation.topic is not None
    right = operation.topic[0]
    for row in permissions:
        if row["exchange"] == exchange:
            pattern = row[right]
            for place, value in (("{username}", row["user"]), ("{vhost}", row["vhost"])):
                pattern = pattern.replace(place, re.escape(value))
            what = f"routing key '{key}' at topic exchange '{exchange}'"
            return Answer(right, what, row[right], covers(pattern, key))
    return None


def covers(pattern: str, name: str) -> bool:
    """Whether a permission gives a right at `name`: it is looked for, not anchored.

    An empty pattern gives the empty name only, and one that cannot be read gives nothing.
    """
    try:
        return compiled(pattern or "^$").is_found_in(name.encode())
    except PatternError:
        return False
