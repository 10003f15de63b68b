"""Options of the data source "warren": parsed and checked once, into a typed value.

An option that is not known, or means nothing for the way of reading, is an error: a misspelt limit that is ignored is
found out in production. Spark hands options over with their names in any case.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from warren.admin.client import NodeAddress

# Read when the option `uri` is not given, so that the password need not appear in a program or in Spark's plans.
URI_VARIABLE: Final = "WARREN_URI"
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")

# As users write them; Spark passes them on in lower case.
COMMON_OPTIONS: Final = ("uri", "queue", "includeBody", "includeHeaders", "retryTimeoutMs")
STREAM_OPTIONS: Final = (
    "group",
    "startingOffsets",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "longPollMs",
    "failOnDataLoss",
)


class OptionError(ValueError):
    """An option is missing, unknown or has an impossible value."""


@dataclass(frozen=True)
class SourceOptions:
    """What the user asked for. Travels to the executors; its repr leaves the URI out."""

    uri: str = field(repr=False)
    queue: str
    include_body: bool
    include_headers: bool
    retry_timeout_ms: int
    # None: not given; only a stream needs one.
    group: str | None
    from_latest: bool
    max_messages: int
    max_bytes: int
    long_poll_ms: int
    fail_on_data_loss: bool
    # Names of the options for streams that were given, for the batch reader to refuse.
    stream_options: tuple[str, ...]

    @property
    def vhost(self) -> str:
        """The vhost the URI names."""
        return NodeAddress(self.uri).vhost


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """OptionError, in one line, for anything that cannot be honoured."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in COMMON_OPTIONS + STREAM_OPTIONS}
    for name in sorted(given):
        if name not in known:
            raise OptionError(f"unknown option '{name}'; format \"warren\" has: {', '.join(known.values())}")
    uri = given.get("uri") or os.environ.get(URI_VARIABLE)
    if not uri:
        raise OptionError(
            f"option 'uri' is missing (amqp://user:password@host:port/vhost, or set {URI_VARIABLE})"
        )
    try:
        NodeAddress(uri)
    except ValueError as error:
        raise OptionError(f"option 'uri': {error}") from None
    queue = given.get("queue")
    if not queue:
        raise OptionError("option 'queue' is missing: the name of the queue to read")
    if len(queue.encode()) > 255:
        raise OptionError("option 'queue': a queue's name has at most 255 bytes")
    group = given.get("group")
    if group is not None and _GROUP_NAME.fullmatch(group) is None:
        raise OptionError("option 'group': 1 to 128 letters, digits, dots, underscores and dashes")
    starting = given.get("startingoffsets", "earliest").lower()
    if starting not in ("earliest", "latest"):
        raise OptionError(f"option 'startingOffsets' is earliest or latest, not '{starting}'")
    return SourceOptions(
        uri=uri,
        queue=queue,
        include_body=parse_boolean(given, "includeBody", True),
        include_headers=parse_boolean(given, "includeHeaders", True),
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
        group=group,
        from_latest=starting == "latest",
        max_messages=parse_number(given, "maxMessagesPerTrigger", 100_000, 1, 1 << 62),
        max_bytes=parse_number(given, "maxBytesPerTrigger", 128 * 1024 * 1024, 1, 1 << 62),
        long_poll_ms=parse_number(given, "longPollMs", 2_000, 0, 60_000),
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", True),
        stream_options=tuple(name for name in STREAM_OPTIONS if name.lower() in given),
    )


def parse_number(given: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """The value of option `name`; `given` has names in lower case. Raises OptionError."""
    value = given.get(name.lower())
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", value) or not lowest <= int(value) <= highest:
        raise OptionError(f"option '{name}' is a whole number from {lowest} to {highest}, not '{value}'")
    return int(value)


def parse_boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """The value of option `name`; `given` has names in lower case. Raises OptionError."""
    value = given.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option '{name}' is true or false, not '{value}'")
    return value.lower() == "true"
