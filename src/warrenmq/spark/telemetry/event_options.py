"""Options of the data source "warren_events": parsed and checked once, into a typed value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from warrenmq.spark.options import (
    SHORT_BYTES_MAX,
    OptionError,
    SourceOptions,
    check_names,
    parse_names,
    parse_options,
)

_OWN: Final = ("events", "firehose")
# Options that mean the same as those of the format "warren".
_OF_STREAMS: Final = (
    "uri",
    "vhost",
    "group",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "longPollMs",
    "retryTimeoutMs",
    "failOnDataLoss",
)
EVENT_OPTIONS: Final = (*_OWN, *_OF_STREAMS)
# The queue of the group G is named so, followed by G.
QUEUE_PREFIX: Final = "warren.events."
_ALL: Final = ("#",)


@dataclass(frozen=True)
class EventOptions:
    """The options of a stream of events."""

    # How the queue of the events is read.
    source: SourceOptions
    # Topic patterns over the names of events.
    events: tuple[str, ...]
    # Topic patterns over the routing keys of the firehose; empty for no messages.
    firehose: tuple[str, ...]

    @property
    def queue(self) -> str:
        """The queue of the events."""
        return self.source.queues[0]


def parse_event_options(options: Mapping[str, str]) -> EventOptions:
    """The options of a stream. Raises OptionError, in one line, for an option that is unusable."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, EVENT_OPTIONS, 'format "warren_events" has')
    group = given.get("group")
    if not group:
        raise OptionError(
            "option 'group' is missing: the name of the query's queue of events and of its reader "
            "group, one for each query, kept for ever"
        )
    of_source = {name: value for name, value in given.items() if name not in _OWN}
    return EventOptions(
        source=parse_options({**of_source, "queues": QUEUE_PREFIX + group}),
        events=_patterns(given, "events", _ALL),
        firehose=_patterns(given, "firehose", ()),
    )


def _patterns(given: Mapping[str, str], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    patterns = parse_names(given, name)
    if patterns is None:
        return default
    for pattern in patterns:
        if len(pattern.encode()) > SHORT_BYTES_MAX:
            raise OptionError(f"option '{name}': a pattern has at most {SHORT_BYTES_MAX} bytes")
    return patterns
