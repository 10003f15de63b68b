"""Options of the data source "warren" for other brokers (`broker=amqp`): parsed and checked once, into typed values."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from warren.admin.client import NodeAddress
from warren.spark.options import URI_VARIABLE, OptionError, parse_boolean, parse_number

# As users write them; Spark passes them on in lower case.
AMQP_COMMON_OPTIONS: Final = ("broker", "uri", "retryTimeoutMs")
AMQP_STREAM_OPTIONS: Final = (
    "queue",
    "spoolDir",
    "spoolMaxBytes",
    "prefetch",
    "deduplicate",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "longPollMs",
    "failOnDataLoss",
    "includeBody",
    "includeHeaders",
)
AMQP_SINK_OPTIONS: Final = ("exchange", "routingKey", "sinkId", "mandatory", "confirmTimeoutMs")
SPOOL_BYTES_MIN: Final = 1024 * 1024
DEDUPLICATE: Final = ("no", "redelivered", "message-id")
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True)
class AmqpSourceOptions:
    """What the user asked for. Travels to the executors; its repr leaves the URI out."""

    uri: str = field(repr=False)
    queue: str
    spool_dir: str
    spool_bytes_max: int
    prefetch: int
    # One of DEDUPLICATE.
    deduplicate: str
    max_messages: int
    max_bytes: int
    long_poll_ms: int
    fail_on_data_loss: bool
    include_body: bool
    include_headers: bool
    retry_timeout_ms: int


@dataclass(frozen=True)
class AmqpSinkOptions:
    """What the user asked for. Travels to the executors; its repr leaves the URI out."""

    uri: str = field(repr=False)
    # None: the column decides.
    exchange: str | None
    routing_key: str | None
    sink_id: str | None
    # Is a message that no queue takes an error?
    mandatory: bool
    confirm_timeout_ms: int
    retry_timeout_ms: int


def is_amqp(options: Mapping[str, str]) -> bool:
    """Do the options name another broker than warren? OptionError when they name none that is known."""
    values = [value for name, value in options.items() if name.lower() == "broker"]
    kind = values[0].lower() if values else "warren"
    if kind not in ("warren", "amqp"):
        raise OptionError(f"option 'broker' is warren or amqp, not '{kind}'")
    return kind == "amqp"


def parse_amqp_source(options: Mapping[str, str]) -> AmqpSourceOptions:
    """OptionError, in one line, for anything that cannot be honoured."""
    given = _known(options, AMQP_COMMON_OPTIONS + AMQP_STREAM_OPTIONS, "reading")
    queue = given.get("queue")
    if not queue:
        raise OptionError("option 'queue' is missing: the name of the queue to read")
    if len(queue.encode()) > 255:
        raise OptionError("option 'queue': a queue's name has at most 255 bytes")
    spool_dir = given.get("spooldir", "").removeprefix("file://")
    if not os.path.isabs(spool_dir):
        raise OptionError(
            "option 'spoolDir' is the absolute path of a directory, one for each query, where messages are kept "
            "until Spark has committed them"
        )
    deduplicate = given.get("deduplicate", "no").lower()
    if deduplicate not in DEDUPLICATE:
        raise OptionError(f"option 'deduplicate' is {', '.join(DEDUPLICATE)}, not '{deduplicate}'")
    return AmqpSourceOptions(
        uri=_uri(given),
        queue=queue,
        spool_dir=spool_dir,
        spool_bytes_max=parse_number(given, "spoolMaxBytes", 4 * 1024**3, SPOOL_BYTES_MIN, 1 << 62),
        prefetch=parse_number(given, "prefetch", 5_000, 1, 65_535),
        deduplicate=deduplicate,
        max_messages=parse_number(given, "maxMessagesPerTrigger", 100_000, 1, 1 << 62),
        max_bytes=parse_number(given, "maxBytesPerTrigger", 128 * 1024 * 1024, 1, 1 << 62),
        long_poll_ms=parse_number(given, "longPollMs", 2_000, 0, 60_000),
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", True),
        include_body=parse_boolean(given, "includeBody", True),
        include_headers=parse_boolean(given, "includeHeaders", True),
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
    )


def parse_amqp_sink(options: Mapping[str, str]) -> AmqpSinkOptions:
    """OptionError, in one line, for anything that cannot be honoured."""
    given = _known(options, AMQP_COMMON_OPTIONS + AMQP_SINK_OPTIONS, "writing")
    for name, option in (("exchange", "exchange"), ("routingkey", "routingKey")):
        if len(given.get(name, "").encode()) > 255:
            raise OptionError(f"option '{option}' has at most 255 bytes")
    sink_id = given.get("sinkid")
    if sink_id is not None and _SINK_ID.fullmatch(sink_id) is None:
        raise OptionError("option 'sinkId': 1 to 128 letters, digits, dots, underscores and dashes")
    mandatory = given.get("mandatory", "fail").lower()
    if mandatory not in ("fail", "ignore"):
        raise OptionError(f"option 'mandatory' is fail or ignore, not '{mandatory}'")
    return AmqpSinkOptions(
        uri=_uri(given),
        exchange=given.get("exchange"),
        routing_key=given.get("routingkey"),
        sink_id=sink_id,
        mandatory=mandatory == "fail",
        confirm_timeout_ms=parse_number(given, "confirmTimeoutMs", 60_000, 1, 86_400_000),
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
    )


def _known(options: Mapping[str, str], names: tuple[str, ...], doing: str) -> dict[str, str]:
    """The options with their names in lower case."""
    known = {name.lower() for name in names}
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given):
        if name not in known:
            raise OptionError(
                f"unknown option '{name}'; for {doing} with broker=amqp there are: {', '.join(names)}"
            )
    return given


def _uri(given: Mapping[str, str]) -> str:
    uri = given.get("uri") or os.environ.get(URI_VARIABLE)
    if not uri:
        raise OptionError(
            f"option 'uri' is missing (amqp://user:password@host:port/vhost, or set {URI_VARIABLE})"
        )
    try:
        NodeAddress(uri)
    except ValueError as error:
        raise OptionError(f"option 'uri': {error}") from None
    return uri
