"""The base of publisher and consumer: a socket that never blocks, unsent octets, an orderly end.

A run ends with connection.close and waits for its answer. Closing the socket over unread deliveries
would reset the connection, and the broker could lose the last acks with it.
"""

from socket import socket
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from warrenmq.perf.errors import PerfError
from warrenmq.perf.frame_scan import FrameScanner
from warrenmq.perf.notices import CLOSED, notice
from warrenmq.wire.encode import write_method_frame
from warrenmq.wire.methods import ConnectionClose

# Half of a usual L1 data cache. A batch is at most 256 KiB, so sendmsg never gets more than 1024
# blocks (IOV_MAX).
REPEATED_BLOCK_BYTES: Final = 16384
# The exceptions of a socket, with and without TLS, that would have to wait.
NOT_NOW: Final = (BlockingIOError, SSLWantReadError, SSLWantWriteError)


class AgentConnection(FrameScanner):
    """A connection with channel 1 open, taken over from `Client`; `role` names it in errors.

    Subclasses define `on_readable` and `on_notice`.
    """

    def __init__(self, sock: socket, role: str, reads_while_writing: bool) -> None:
        super().__init__()
        self.sock: socket = sock
        self._is_tls: bool = isinstance(sock, SSLSocket)
        # False: read nothing while octets wait to be sent.
        self.reads_while_writing: bool = reads_while_writing
        self.is_closing: bool = False
        self.is_closed: bool = False
        # The epoll events this socket is registered for; kept by the loop.
        self.interest: int = 0
        self._role: str = role
        self._pending: bytes = b""
        self._pending_at: i64 = 0

    def on_readable(self) -> None:
        """Read from the socket: it has octets."""
        raise NotImplementedError

    def on_notice(self, code: i64) -> None:
        """Handle a method of `notices` other than a close."""
        raise NotImplementedError

    def wants_write(self) -> bool:
        """Whether octets wait for the socket to take them."""
        return len(self._pending) > 0

    def send(self, octets: bytes) -> None:
        """Send at once, or append to the octets that wait already."""
        if len(self._pending) > 0:
            self._pending = self._pending[self._pending_at :] + octets
            self._pending_at = 0
            return
        sent: i64 = self._send_some(octets)
        if sent < len(octets):
            self._pending = octets
            self._pending_at = sent

    def send_repeated(self, message: bytes, count: i64) -> None:
        """Send `message` `count` times; no octets may be waiting.

        The kernel copies from one block again and again, so the block stays in the L1 cache, and no
        batch is ever built in memory that must be mapped for it.
        """
        size: i64 = len(message)
        in_block: i64 = min(max(REPEATED_BLOCK_BYTES // size, 1), count)
        if self._is_tls:
            self.send(message * int(count))
            return
        block = message if in_block == 1 else message * int(in_block)
        blocks: list[bytes] = [block] * int(count // in_block)
        if count % in_block > 0:
            blocks.append(message * int(count % in_block))
        try:
            sent: i64 = self.sock.sendmsg(blocks)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise PerfError(f"the {self._role}'s connection broke: {error}") from None
        left: i64 = size * count - sent
        if left > 0:
            # The unsent rest begins inside a message.
            whole: i64 = (left + size - 1) // size
            self._pending = message * int(whole)
            self._pending_at = whole * size - left

    def _send_some(self, octets: bytes) -> i64:
        """Send as much as the socket takes; returns the number of octets."""
        sent: i64 = 0
        try:
            if not self._is_tls:
                return self.sock.send(octets)
            # A TLS socket takes one record at a time.
            left = memoryview(octets)
            while len(left) > 0:
                taken = self.sock.send(left)
                sent += taken
                left = left[taken:]
        except NOT_NOW:
            pass
        except OSError as error:
            raise PerfError(f"the {self._role}'s connection broke: {error}") from None
        return sent

    def flush(self) -> None:
        """Send the waiting octets: the socket takes some again."""
        octets = self._pending
        if self._pending_at > 0:
            octets = octets[self._pending_at :]
        self._pending = b""
        self._pending_at = 0
        if len(octets) > 0:
            self.send(octets)

    def receive(self, bytes_max: int) -> bytes:
        """The octets that have arrived; empty when there are none."""
        try:
            chunk: bytes = self.sock.recv(bytes_max)
        except NOT_NOW:
            return b""
        except OSError as error:
            raise PerfError(f"the {self._role}'s connection broke: {error}") from None
        if not chunk:
            raise PerfError(f"the broker closed the {self._role}'s connection without a reason")
        return chunk

    def close(self) -> None:
        """Send connection.close; `is_closed` turns true when the broker has answered."""
        self.is_closing = True
        out = BytesWriter()
        write_method_frame(out, 0, ConnectionClose(reply_code=200, reply_text=b"done"))
        self.send(out.getvalue())

    def on_method(self, data: bytes, start: i64, end: i64) -> None:
        code = notice(data, start, end)
        if code == CLOSED:
            self.is_closed = True
        else:
            self.on_notice(code)
