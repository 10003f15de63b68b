"""Options of the data source "warren": parsed and checked once, into a typed value.

An option that is unknown, or has no meaning for this way of reading, is an error: an ignored
misspelt limit would be noticed only in production. Spark may pass option names in any case.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

from warrenmq.admin.client.client import URI_VARIABLE, NodeAddress
from warrenmq.spark.kafka_names import option_hint
from warrenmq.spark.large_bodies import STREAM_CHOICES
from warrenmq.vocabulary.patterns.name_pattern import NamePattern

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DURATION: Final = re.compile(r"([0-9]{1,9}) *(ms|s|m|h)")
_DURATION_MAX_MS: Final = 86_400_000
_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Most bytes of an AMQP short string; every name is one.
SHORT_BYTES_MAX: Final = 255
_PATTERN_LENGTH_MAX: Final = 1000
_PARTITIONS_MAX: Final = 10_000
# Stands for "no limit": above every position and every count.
EVERYTHING: Final = 1 << 62

NamedEnd: TypeAlias = Literal["earliest", "latest"]
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

# Option names as users write them; Spark may pass them in lower case.
COMMON_OPTIONS: Final = (
    "broker",
    "uri",
    "vhost",
    "queues",
    "queuesPattern",
    "startingOffsets",
    "startingTimestamp",
    "minPartitions",
    "includeBody",
    "includeHeaders",
    "largeBodies",
    "verify",
    "retryTimeoutMs",
)
STREAM_OPTIONS: Final = (
    "group",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "longPollMs",
    "failOnDataLoss",
    "access",
    "ackOn",
)
BATCH_OPTIONS: Final = ("endingOffsets", "endingTimestamp", "seqFrom", "seqTo")
# How alike an unknown and a known name must be for a hint, from 0 to 1.
_LIKENESS_MIN: Final = 0.8
# Options that exclude each other: ways to say where reading starts, and where it ends.
_STARTS: Final = ("startingOffsets", "startingTimestamp", "seqFrom")
_ENDS: Final = ("endingOffsets", "endingTimestamp", "seqTo")

ACCESS_AUTO: Final = "auto"
ACCESS_FILES: Final = "files"
ACCESS_NETWORK: Final = "network"
ACK_ON_LATEST_OFFSET: Final = "latestOffset"
ACK_ON_COMMIT: Final = "commit"


class OptionError(ValueError):
    """An option is missing, unknown or has an invalid value."""


@dataclass(frozen=True)
class Bound:
    """Where reading begins or ends: at a named end, at a time, or at a position for each queue."""

    # The named end; None when it is not given.
    name: NamedEnd | None = None
    # Milliseconds since 1970; None when it is not given.
    timestamp_ms: int | None = None
    # Seq id by queue; other queues are read from their first message, or to their last one.
    seqs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read. Spark sends them to the executors; the repr leaves out the URI."""

    # URI of the broker, with the vhost in it even when the user gave the vhost as an option.
    uri: str = field(repr=False)
    # Names of the queues to read; empty when `pattern` is given.
    queues: tuple[str, ...]
    # Regular expression for whole queue names; empty when `queues` is given.
    pattern: str
    start: Bound
    end: Bound
    # First seq id to read, the same for all queues.
    seq_from: int
    # Seq id behind the last one to read, the same for all queues.
    seq_to: int
    min_partitions: int
    include_body: bool
    include_headers: bool
    # One of large_bodies.STREAM_CHOICES.
    large_bodies: str
    # True: the checksums of bodies are compared when messages arrive.
    is_verified: bool
    retry_timeout_ms: int
    # Name of the reader group; None when it is not given. Only a stream needs one.
    group: str | None
    max_messages: int
    max_bytes: int
    min_messages: int
    max_delay_ms: int
    long_poll_ms: int
    fail_on_data_loss: bool
    access: str
    ack_on: str
    # Names of given options that only streams have; a batch read refuses them.
    stream_options: tuple[str, ...]
    # Names of given options that only batch reads have; a stream refuses them.
    batch_options: tuple[str, ...]

    @property
    def vhost(self) -> str:
        """The vhost of the queues."""
        return NodeAddress(self.uri).vhost


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a read. Raises OptionError, in one line, for an option that is not usable."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, COMMON_OPTIONS + STREAM_OPTIONS + BATCH_OPTIONS, 'format "warren" has')
    for group in (_STARTS, _ENDS, ("queues", "queuesPattern")):
        both = [name for name in group if name.lower() in given]
        if len(both) > 1:
            raise OptionError(f"options '{both[0]}' and '{both[1]}' exclude each other")
    if "maxtriggerdelay" in given and "minmessagespertrigger" not in given:
        raise OptionError("option 'maxTriggerDelay' means nothing without 'minMessagesPerTrigger'")
    max_messages = parse_number(given, "maxMessagesPerTrigger", 500_000, 1, EVERYTHING)
    queues, pattern = _queues(given), _pattern(given)
    include_body = parse_boolean(given, "includeBody", True)
    start = _bound(given, "starting", (EARLIEST, LATEST))
    end = _bound(given, "ending", (LATEST,))
    for name in (*start.seqs, *end.seqs):
        is_read = (
            NamePattern(pattern).matches(name) if pattern and _is_name(name) else name in queues
        )
        if not is_read:
            raise OptionError(
                f"options name positions in '{name}', which is none of the queues to read"
            )
    return SourceOptions(
        uri=parse_uri(given),
        queues=queues,
        pattern=pattern,
        start=start,
        end=end,
        seq_from=parse_number(given, "seqFrom", 0, 0, EVERYTHING),
        seq_to=parse_number(given, "seqTo", EVERYTHING, 0, EVERYTHING),
        min_partitions=parse_number(given, "minPartitions", 1, 1, _PARTITIONS_MAX),
        include_body=include_body,
        include_headers=parse_boolean(given, "includeHeaders", True),
        large_bodies=parse_large_bodies(given, include_body, STREAM_CHOICES),
        is_verified=parse_choice(given, "verify", ("crc", "none")) == "crc",
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
        group=parse_plain_name(given, "group"),
        max_messages=max_messages,
        max_bytes=parse_number(given, "maxBytesPerTrigger", 512 * 1024 * 1024, 1, EVERYTHING),
        min_messages=parse_number(given, "minMessagesPerTrigger", 1, 1, max_messages),
        max_delay_ms=parse_duration_ms(given, "maxTriggerDelay", 15 * 60_000),
        long_poll_ms=parse_number(given, "longPollMs", 2_000, 0, 60_000),
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", True),
        access=parse_choice(given, "access", (ACCESS_AUTO, ACCESS_FILES, ACCESS_NETWORK)),
        ack_on=parse_choice(given, "ackOn", (ACK_ON_LATEST_OFFSET, ACK_ON_COMMIT)),
        stream_options=tuple(name for name in STREAM_OPTIONS if name.lower() in given),
        batch_options=tuple(name for name in BATCH_OPTIONS if name.lower() in given),
    )


def check_names(given: Mapping[str, str], known: tuple[str, ...], owner_has: str) -> None:
    """Raise OptionError for an option not in `known`; `owner_has` begins the error's list."""
    names = {name.lower() for name in known}
    for name in sorted(given):
        if name not in names:
            raise OptionError(
                f"unknown option '{name}'{_hint(name, known)}; {owner_has}: {', '.join(known)}"
            )


def _hint(name: str, known: tuple[str, ...]) -> str:
    """Which option of `known` somebody who wrote `name` may have meant; "" when nobody can tell."""
    # Imported only for an error: a worker does not wait for the library.
    from difflib import get_close_matches

    hint = option_hint(name, known)
    if not hint:
        by_lower_case = {each.lower(): each for each in known}
        similar = get_close_matches(name, by_lower_case, 1, _LIKENESS_MIN)
        hint = f"did you mean {by_lower_case[similar[0]]}?" if similar else ""
    return f" ({hint})" if hint else ""


def parse_number(
    given: Mapping[str, str], name: str, default: int, lowest: int, highest: int
) -> int:
    """The whole number of option `name`, from `lowest` to `highest`. Raises OptionError.

    This and the following functions take `given` with names in lower case.
    """
    value = given.get(name.lower())
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", value) or not lowest <= int(value) <= highest:
        raise OptionError(
            f"option '{name}' is a whole number from {lowest} to {highest}, not '{value}'"
        )
    return int(value)


def parse_boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """The value, true or false, of option `name`. Raises OptionError."""
    value = given.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option '{name}' is true or false, not '{value}'")
    return value.lower() == "true"


def parse_choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The choice in option `name`, in any case; the first one by default. Raises OptionError."""
    value = given.get(name.lower(), choices[0])
    for choice in choices:
        if choice.lower() == value.lower():
            return choice
    raise OptionError(f"option '{name}' is one of {', '.join(choices)}, not '{value}'")


def parse_large_bodies(
    given: Mapping[str, str], include_body: bool, choices: tuple[str, ...]
) -> str:
    """The choice in option `largeBodies`. Raises OptionError, also when bodies are left out."""
    if "largebodies" in given and not include_body:
        raise OptionError("option 'largeBodies' means nothing with includeBody=false")
    return parse_choice(given, "largeBodies", choices)


def parse_names(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """The names in option `name`, or None when it is not given. Raises OptionError.

    Names are separated by commas; names that contain commas come as a JSON list.
    """
    value = given.get(name.lower())
    if value is None:
        return None
    names: Any
    if value.lstrip().startswith("["):
        names = _json(value)
    else:
        names = [part.strip() for part in value.split(",")]
    if not isinstance(names, list) or not names or not all(_is_name(part) for part in names):
        raise OptionError(f"option '{name}': names separated by commas, or a JSON list of names")
    return tuple(names)


def parse_plain_name(given: Mapping[str, str], name: str) -> str | None:
    """The name of a reader group or a sink; None when it is not given. Raises OptionError."""
    value = given.get(name.lower())
    if value is not None and _PLAIN_NAME.fullmatch(value) is None:
        raise OptionError(
            f"option '{name}': 1 to 128 letters, digits, dots, underscores and dashes"
        )
    return value


def parse_short_text(given: Mapping[str, str], name: str) -> str | None:
    """Text that fits an AMQP short string, such as an exchange's name; None when not given.

    Raises OptionError when the text is longer.
    """
    value = given.get(name.lower())
    if value is not None and len(value.encode()) > SHORT_BYTES_MAX:
        raise OptionError(f"option '{name}' has at most {SHORT_BYTES_MAX} bytes")
    return value


def parse_time_ms(given: Mapping[str, str], name: str) -> int | None:
    """A time in milliseconds since 1970, rounded up; None when not given. Raises OptionError."""
    value = given.get(name.lower())
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise OptionError(
            f"option '{name}' is a time like 2026-01-31T12:00:00Z (UTC when no zone is given), not '{value}'"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    # Messages have whole milliseconds, so "at this time or later" is "at the next whole one or
    # later".
    ms = -((_EPOCH - time) // timedelta(milliseconds=1))
    if ms < 0:
        raise OptionError(f"option '{name}' is a time since 1970, not '{value}'")
    return ms


def parse_duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    """A duration such as 500ms, 10s, 15m or 2h, in milliseconds. Raises OptionError."""
    value = given.get(name.lower())
    if value is None:
        return default
    found = _DURATION.fullmatch(value.strip().lower())
    ms = -1 if found is None else int(found[1]) * _DURATION_UNITS_MS[found[2]]
    if not 0 <= ms <= _DURATION_MAX_MS:
        raise OptionError(
            f"option '{name}' is a duration such as 500ms, 10s, 15m or 2h, at most 24h, not '{value}'"
        )
    return ms


def parse_uri(given: Mapping[str, str]) -> str:
    """The broker's URI with the vhost in it. Raises OptionError."""
    uri = given.get("uri") or os.environ.get(URI_VARIABLE)
    if not uri:
        raise OptionError(
            f"option 'uri' is missing (amqp://user:password@host:port/vhost, or set {URI_VARIABLE})"
        )
    try:
        NodeAddress(uri)
    except ValueError as error:
        raise OptionError(f"option 'uri': {error}") from None
    vhost = given.get("vhost")
    if vhost is None:
        return uri
    if not vhost:
        raise OptionError("option 'vhost' is empty: name a vhost, or leave the option out")
    parts = urlsplit(uri)
    if parts.path not in ("", "/"):
        raise OptionError("option 'vhost': the URI names a vhost already")
    return urlunsplit(parts._replace(path="/" + quote(vhost, safe="")))


def _queues(given: Mapping[str, str]) -> tuple[str, ...]:
    names = parse_names(given, "queues")
    if names is None:
        if "queuespattern" in given:
            return ()
        raise OptionError(
            "option 'queues' is missing: the names of the queues to read (or 'queuesPattern')"
        )
    for name in names:
        if len(name.encode()) > SHORT_BYTES_MAX:
            raise OptionError(
                f"option 'queues': a queue's name has at most {SHORT_BYTES_MAX} bytes"
            )
    if len(set(names)) < len(names):
        raise OptionError("option 'queues' names a queue twice")
    return tuple(sorted(names))


def _pattern(given: Mapping[str, str]) -> str:
    pattern = given.get("queuespattern", "")
    if "queuespattern" in given and not 0 < len(pattern) <= _PATTERN_LENGTH_MAX:
        raise OptionError(f"option 'queuesPattern' has 1 to {_PATTERN_LENGTH_MAX} characters")
    try:
        NamePattern(pattern)
    except ValueError as error:
        raise OptionError(f"option 'queuesPattern' is no regular expression: {error}") from None
    return pattern


def _bound(given: Mapping[str, str], prefix: str, names: tuple[NamedEnd, ...]) -> Bound:
    offsets_name = f"{prefix}Offsets"
    value = given.get(offsets_name.lower())
    if value is None:
        return Bound(timestamp_ms=parse_time_ms(given, f"{prefix}Timestamp"))
    for name in names:
        if value.lower() == name:
            return Bound(name=name)
    seqs = _json(value)
    if (
        isinstance(seqs, dict)
        and seqs
        and all(type(seq) is int and 0 <= seq <= EVERYTHING for seq in seqs.values())
    ):
        return Bound(seqs=seqs)
    raise OptionError(
        f"option '{offsets_name}' is {', '.join(names)}, or positions by queue such as "
        f"""{{"orders": 1234}}, not '{value[:200]}'"""
    )


def _is_name(value: object) -> bool:
    # JSON may contain half of a surrogate pair, which is no valid text.
    return (
        isinstance(value, str)
        and value != ""
        and value == value.encode("utf-8", "replace").decode()
    )


def _json(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
