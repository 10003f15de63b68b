"""The traffic of one connection since it was accepted, for listings."""

from mypy_extensions import i64


class Traffic:
    """What a connection has received and how often it has written; `Output` counts sent bytes."""

    def __init__(self, now_ms: i64) -> None:
        self.connected_at_ms: i64 = now_ms
        self.received_bytes: i64 = 0
        # Reads of the socket that brought bytes.
        self.reads: i64 = 0
        # Turns in which output was written.
        self.writes: i64 = 0

    def received(self, size: i64) -> None:
        """Count a read of `size` bytes."""
        self.received_bytes += size
        self.reads += 1
