"""What the brakes of a connection know of it: its output, and whether its socket is read."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.output import Output


class ClientSocket:
    """The node's end of a socket. The shell looks at the flags after each turn in which `touch` was called."""

    def __init__(self, out: Output, now_ms: i64) -> None:
        self.out: Output = out
        self.now_ms: i64 = now_ms
        # `touch` was called since the shell last took the output.
        self.is_dirty: bool = False
        self.is_reading: bool = True
        # The shell does not read the socket, for this reason or one of its own.
        self.is_unread: bool = False
        self.is_writable: bool = True

    def touch(self) -> None:
        """There is something for the shell to do."""
        raise RuntimeError("abstract")
