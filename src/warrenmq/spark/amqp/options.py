"""Options of the data source "warren" with `broker=amqp`: parsed once into typed values."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from warrenmq.spark.large_bodies import READ_CHOICES
from warrenmq.spark.options import (
    OptionError,
    check_names,
    parse_boolean,
    parse_choice,
    parse_large_bodies,
    parse_number,
    parse_plain_name,
    parse_short_text,
    parse_uri,
)

# Option names as users write them; Spark may pass them in lower case.
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
    "largeBodies",
)
AMQP_SINK_OPTIONS: Final = ("exchange", "routingKey", "sinkId", "mandatory", "confirmTimeoutMs")
SPOOL_BYTES_MIN: Final = 1024 * 1024
DEDUPLICATE: Final = ("no", "redelivered", "message-id")


@dataclass(frozen=True)
class AmqpSourceOptions:
    """The options of a read. Spark sends them to the executors; the repr leaves out the URI."""

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
    # One of large_bodies.READ_CHOICES: the broker has acked what the spool has.
    large_bodies: str
    retry_timeout_ms: int


@dataclass(frozen=True)
class AmqpSinkOptions:
    """The options of a write. Spark sends them to the executors; the repr leaves out the URI."""

    uri: str = field(repr=False)
    # Exchange of all messages; None when the column decides.
    exchange: str | None
    # Routing key of all messages; None when the column decides.
    routing_key: str | None
    # Beginning of the message-ids that the sink makes; None: the query's id, or a new one.
    sink_id: str | None
    # True: a message that no queue takes is an error. False: it is dropped.
    is_mandatory: bool
    confirm_timeout_ms: int
    retry_timeout_ms: int


def is_amqp(options: Mapping[str, str]) -> bool:
    """Whether the options name a broker other than warren; OptionError for an unknown kind."""
    values = [value for name, value in options.items() if name.lower() == "broker"]
    kind = values[0].lower() if values else "warren"
    if kind not in ("warren", "amqp"):
        raise OptionError(f"option 'broker' is warren or amqp, not '{kind}'")
    return kind == "amqp"


def parse_amqp_source(options: Mapping[str, str]) -> AmqpSourceOptions:
    """The options of a read. Raises OptionError, in one line, for an option that is not usable."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, AMQP_COMMON_OPTIONS + AMQP_STREAM_OPTIONS, "reading with broker=amqp has")
    queue = parse_short_text(given, "queue")
    if not queue:
        raise OptionError("option 'queue' is missing: the name of the queue to read")
    spool_dir = given.get("spooldir", "").removeprefix("file://")
    if not os.path.isabs(spool_dir):
        raise OptionError(
            "option 'spoolDir' is the absolute path of a directory, one for each query, where messages are kept "
            "until Spark has committed them"
        )
    include_body = parse_boolean(given, "includeBody", True)
    return AmqpSourceOptions(
        uri=parse_uri(given),
        queue=queue,
        spool_dir=spool_dir,
        spool_bytes_max=parse_number(given, "spoolMaxBytes", 4 * 1024**3, SPOOL_BYTES_MIN, 1 << 62),
        prefetch=parse_number(given, "prefetch", 5_000, 1, 65_535),
        deduplicate=parse_choice(given, "deduplicate", DEDUPLICATE),
        max_messages=parse_number(given, "maxMessagesPerTrigger", 100_000, 1, 1 << 62),
        max_bytes=parse_number(given, "maxBytesPerTrigger", 128 * 1024 * 1024, 1, 1 << 62),
        long_poll_ms=parse_number(given, "longPollMs", 2_000, 0, 60_000),
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", True),
        include_body=include_body,
        include_headers=parse_boolean(given, "includeHeaders", True),
        large_bodies=parse_large_bodies(given, include_body, READ_CHOICES),
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
    )


def parse_amqp_sink(options: Mapping[str, str]) -> AmqpSinkOptions:
    """The options of a write. Raises OptionError, in one line, for an option that is not usable."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, AMQP_COMMON_OPTIONS + AMQP_SINK_OPTIONS, "writing with broker=amqp has")
    return AmqpSinkOptions(
        uri=parse_uri(given),
        exchange=parse_short_text(given, "exchange"),
        routing_key=parse_short_text(given, "routingKey"),
        sink_id=parse_plain_name(given, "sinkId"),
        is_mandatory=parse_choice(given, "mandatory", ("fail", "ignore")) == "fail",
        confirm_timeout_ms=parse_number(given, "confirmTimeoutMs", 60_000, 1, 86_400_000),
        retry_timeout_ms=parse_number(given, "retryTimeoutMs", 120_000, 0, 86_400_000),
    )
