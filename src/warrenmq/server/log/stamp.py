"""The time of an event of the log, as RabbitMQ writes it."""

from datetime import UTC, datetime


def stamp(created_s: float) -> str:
    """`2026-11-28 17:04:28.123456+00:00`, in the time zone of the node.

    `created_s`: seconds since 1970, as in `LogRecord.created`.
    """
    time = datetime.fromtimestamp(created_s, UTC).astimezone()
    return time.isoformat(sep=" ", timespec="microseconds")
