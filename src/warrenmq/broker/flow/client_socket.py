"""The interface of a connection to its throttle: its output, and flags about its socket."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.output import Output


class ClientSocket:
    """The node's end of a socket; the shell reads the flags after each turn with a `touch`."""

    def __init__(self, out: Output, now_ms: i64) -> None:
        self.out: Output = out
        self.now_ms: i64 = now_ms
        # True if `touch` was called since the shell last took the output.
        self.is_dirty: bool = False
        # False while flow control does not want the socket to be read.
        self.is_reading: bool = True
        # True while the shell does not read the socket, because of `is_reading` or for its own
        # reason.
        self.is_unread: bool = False
        self.is_writable: bool = True

    def touch(self) -> None:
        """Tell the shell that this connection has output or changed flags."""
        raise RuntimeError("abstract")
