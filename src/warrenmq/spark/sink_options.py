"""Options of writing with the data source "warren": parsed and checked once, into a typed value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from warrenmq.spark.options import (
    check_names,
    parse_choice,
    parse_number,
    parse_plain_name,
    parse_short_text,
    parse_uri,
)

# As users write them; Spark passes them on in lower case.
SINK_OPTIONS: Final = (
    "uri",
    "vhost",
    "exchange",
    "routingKey",
    "sinkId",
    "mandatory",
    "deliveryMode",
    "confirmTimeoutMs",
)
# What a streaming query is told for itself, in lower case; Spark hands it on to the sink.
STREAM_OPTIONS_OF_SPARK: Final = ("checkpointlocation", "queryname")
# The same, for queries that write their progress asynchronously. After a crash these give the number of a batch to other
# rows, so nothing can be written exactly once.
ASYNC_OPTIONS_OF_SPARK: Final = (
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
)


@dataclass(frozen=True)
class SinkOptions:
    """What the user asked for. Travels to the executors; its repr leaves the URI out."""

    uri: str = field(repr=False)
    # None: columns decide.
    exchange: str | None
    routing_key: str | None
    # None: the query's id, or a new one for each run of a batch write.
    sink_id: str | None
    # A batch with messages that no queue would get is refused, instead of leaving those out.
    is_mandatory: bool
    # Of messages of which no column says whether they are persistent.
    is_persistent: bool
    confirm_timeout_ms: int
    # Jobs have an option of their own for how long a broker that is away is waited for. None: confirm_timeout_ms.
    retry_timeout_ms: int | None = None

    @property
    def away_timeout_ms(self) -> int:
        """How long a broker that is away is waited for."""
        return self.confirm_timeout_ms if self.retry_timeout_ms is None else self.retry_timeout_ms


def without_options_of_spark(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The options of a stream's sink without those that Spark has added: `names`, in lower case."""
    return {name: value for name, value in options.items() if name.lower() not in names}


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """OptionError, in one line, for anything that cannot be honoured."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, SINK_OPTIONS, 'writing with format "warren" has')
    return SinkOptions(
        uri=parse_uri(given),
        exchange=parse_short_text(given, "exchange"),
        routing_key=parse_short_text(given, "routingKey"),
        sink_id=parse_plain_name(given, "sinkId"),
        is_mandatory=parse_choice(given, "mandatory", ("fail", "ignore")) == "fail",
        is_persistent=parse_choice(given, "deliveryMode", ("persistent", "transient"))
        == "persistent",
        confirm_timeout_ms=parse_number(given, "confirmTimeoutMs", 120_000, 1, 86_400_000),
    )
