"""Options of writing with the data source "warren": parsed and checked once, into a typed value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from warrenmq.spark.nodes import Place
from warrenmq.spark.options import (
    check_names,
    parse_choice,
    parse_number,
    parse_plain_name,
    parse_short_text,
    parse_uri,
)

# Option names as users write them; Spark may pass them in lower case.
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
# Options of the streaming query itself, in lower case; Spark passes them on to the sink.
STREAM_OPTIONS_OF_SPARK: Final = ("checkpointlocation", "queryname")
# Options of queries that write their progress asynchronously, in lower case. After a crash these
# give the number of a batch to other rows, so nothing can be written exactly once.
ASYNC_OPTIONS_OF_SPARK: Final = (
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
)


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write. Spark sends them to the executors; the repr leaves out the URI."""

    uri: str = field(repr=False)
    # Exchange of all messages; None when a column decides.
    exchange: str | None
    # Routing key of all messages; None when a column decides.
    routing_key: str | None
    # Name of the sink; None stands for the query's id, or for a new id in each run of a batch
    # write.
    sink_id: str | None
    # True: a batch with a message that no queue would get is refused. False: that message is
    # dropped.
    is_mandatory: bool
    # Whether messages are persistent where no column says so.
    is_persistent: bool
    confirm_timeout_ms: int
    # Jobs have an option of their own for how long a broker that is away is waited for. None:
    # confirm_timeout_ms.
    retry_timeout_ms: int | None = None
    # The nodes of the cluster in the order of their use, as the driver has found them for a batch.
    nodes: tuple[Place, ...] = ()

    @property
    def away_timeout_ms(self) -> int:
        """How long to retry while the broker is away, in ms."""
        return self.confirm_timeout_ms if self.retry_timeout_ms is None else self.retry_timeout_ms


def without_options_of_spark(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """`options` without those that Spark added: `names`, in lower case."""
    return {name: value for name, value in options.items() if name.lower() not in names}


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write. Raises OptionError, in one line, for an option that is not usable."""
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
