"""One node link: handshake, frames by lane, heartbeats. Does no I/O.

    new Link -> handshake -> up -> down

The shell feeds `receive`, calls `tick` several times a second, and sends what `take_output`
returns. The link calls its `LinkHandler` with whole frames while it is up. It calls its
`LinkHost`, which knows all links of the node, when it has come up, is down, or has output.

The other side is trusted with nothing: whatever bytes it sends, `receive` raises no exception of
its own. A fault makes the link go down with a reason, and the other side hears the reason in a
REFUSE frame, so that both nodes log the same text. A node that ends a link for another reason
(`close`) says so in the same way.

A ping goes out every HEARTBEAT_MS, whatever else is sent. It carries the sender's time and the last
time that it got of the other side (i64, i64, ms), so each side knows which of its own pings have
arrived (`echoed_ms`). The other side is dead when no byte has come for SILENCE_MS. That time is
counted in ticks of at most HEARTBEAT_MS each: when this node's own loop stood still, bytes of that
time may still wait in the socket.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64, mypyc_attr

from warrenmq.cluster.links import frames
from warrenmq.cluster.links.handshake import (
    HANDSHAKE_BYTES_MAX,
    Handshake,
    HandshakeError,
    Identity,
    printable,
)

HEARTBEAT_MS: Final = 500
# Silence after which the other side is dead.
SILENCE_MS: Final = 3000
# Time for a whole handshake.
HANDSHAKE_MS: Final = 5000
# Unsent bytes from which a link is not writable: at 1 Gbit/s they take 8 ms.
WRITABLE_BYTES: Final = 1048576
_PING_BYTES: Final = 16


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkHandler:
    """The user of the links: the rest of the cluster."""

    def on_up(self, link: Link) -> None:
        """Called when the two sides know each other: frames may be sent from now on."""
        raise RuntimeError("abstract")

    def on_frame(self, link: Link, kind: i64, payload: bytes) -> None:
        """A whole frame of the other side has arrived.

        Frames of one lane arrive in the order of their sending. A handler that cannot read the
        payload calls `link.close` with the reason.
        """
        raise RuntimeError("abstract")

    def on_down(self, link: Link, reason: str) -> None:
        """The link is gone; frames that were not sent are lost. Called once for each `on_up`."""
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkHost:
    """The links of a node, as one link sees them."""

    def on_up(self, link: Link) -> None:
        """The handshake is complete; `link.peer` has proved who it is."""
        raise RuntimeError("abstract")

    def on_down(self, link: Link, reason: str) -> None:
        """The link is down, whether it was up before or not. Called once."""
        raise RuntimeError("abstract")

    def on_output(self, link: Link) -> None:
        """The link has output, for the first time since the last `take_output`."""
        raise RuntimeError("abstract")


@mypyc_attr(native_class=True)
class Link:
    """One connection to another node. The time is in ms and never goes back.

    `address` is the other side's, for people. The side whose `handshake` expects a name dials, so
    it has output at once.
    """

    def __init__(
        self,
        handshake: Handshake,
        address: str,
        host: LinkHost,
        handler: LinkHandler,
        now_ms: i64,
    ) -> None:
        self.address: str = address
        # The shell's end of the link.
        self.shell: object | None = None
        # The other side, once it has proved who it is.
        self.peer: Identity | None = None
        self.is_up: bool = False
        self.is_down: bool = False
        self._handshake: Handshake = handshake
        self._host: LinkHost = host
        self._handler: LinkHandler = handler
        self._reader: frames.FrameReader = frames.FrameReader(HANDSHAKE_BYTES_MAX)
        self._queue: frames.FrameQueue = frames.FrameQueue()
        # True since `on_output`, until the output is taken.
        self._is_dirty: bool = False
        # Bytes that the shell has taken and the socket has not.
        self._socket_bytes: i64 = 0
        self._give_up_at_ms: i64 = now_ms + HANDSHAKE_MS
        self._next_ping_ms: i64 = 0
        self._last_tick_ms: i64 = now_ms
        # Counted by ticks, since the last byte.
        self._silence_ms: i64 = 0
        # Time of this side's last ping that the other side has got; 0: none. The handshake does not
        # count: frames that the other side sends when the link comes up arrive before its pings.
        self._echoed_ms: i64 = 0
        # Time in the last ping of the other side, on its clock; 0: none has come.
        self._peer_ms: i64 = 0
        if self.is_dialled:
            self._send_first(frames.HELLO, handshake.hello())

    # -- for the handler ---------------------------------------------------------------------------

    @property
    def peer_name(self) -> str:
        """The name of the other node, as it was dialled or as it says; "" while it is not known."""
        return self._handshake.peer_name

    @property
    def is_dialled(self) -> bool:
        """Whether this side has made the connection."""
        return self._handshake.expected_name != ""

    @property
    def version(self) -> int:
        """The version of the links that both sides speak."""
        return self._handshake.version

    @property
    def silence_ms(self) -> i64:
        """Time since the last byte of the other side, counted by ticks."""
        return self._silence_ms

    @property
    def echoed_ms(self) -> i64:
        """The other side has heard this one at this time (ms, on this side's clock), or later.

        0 before the first echo. Everything in the lane CONTROL that the other side has sent since
        the link came up has arrived before that.
        """
        return self._echoed_ms

    @property
    def unsent_bytes(self) -> i64:
        """Bytes that wait here or in the socket's buffer."""
        return self._queue.size_bytes + self._socket_bytes

    @property
    def is_writable(self) -> bool:
        """False while WRITABLE_BYTES or more are unsent: the handler should send no more DATA.

        When that changes, the node ends a turn.
        """
        return self.unsent_bytes < WRITABLE_BYTES

    def send(self, lane: i64, kind: i64, payload: bytes) -> None:
        """Send a frame in `lane`, CONTROL or DATA; a link that is not up any more drops it.

        Kinds go from FIRST_KIND to LAST_KIND. A CONTROL payload has at most CHUNK_BYTES, any other
        at most PAYLOAD_BYTES_MAX.
        """
        assert frames.FIRST_KIND <= kind <= frames.LAST_KIND
        if not self.is_up:
            return
        if lane == frames.CONTROL:
            assert len(payload) <= frames.CHUNK_BYTES
            self._send_first(kind, payload)
            return
        assert lane == frames.DATA and len(payload) <= frames.PAYLOAD_BYTES_MAX
        self._queue.add_data(kind, payload)
        self._touch()

    def close(self, reason: str) -> None:
        """Go down for `reason`, and tell the other side."""
        if not self.is_down:
            text = printable(reason)
            self._queue.clear()
            self._send_first(frames.REFUSE, text.encode())
            self._go_down(text)

    # -- for the shell -----------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Take the next bytes of the other side and handle every frame that they complete."""
        self._silence_ms = 0
        reader = self._reader
        reader.feed(data)
        while not self.is_down:
            kind = reader.next_frame()
            if kind == frames.NEED_DATA:
                break
            if kind == frames.BAD_FRAME:
                self.close(f"the other side broke the protocol of the links: {reader.fault}")
            elif kind >= frames.FIRST_KIND and self.is_up:
                self._handler.on_frame(self, kind, reader.payload)
            else:
                self._receive_own(kind, reader.payload, now_ms)

    def lost(self, reason: str) -> None:
        """The connection is gone; call it whether the link is down already or not."""
        self._queue.clear()
        self._go_down(printable(reason))

    def tick(self, now_ms: i64) -> None:
        """Send a ping if one is due; go down when the other side is silent or too slow to begin.

        To be called at least every HEARTBEAT_MS.
        """
        elapsed_ms: i64 = now_ms - self._last_tick_ms
        self._last_tick_ms = now_ms
        if self.is_down:
            return
        if not self.is_up:
            if now_ms >= self._give_up_at_ms:
                self.close(f"the handshake took more than {HANDSHAKE_MS} ms")
            return
        self._silence_ms += elapsed_ms if elapsed_ms < HEARTBEAT_MS else HEARTBEAT_MS
        if self._silence_ms >= SILENCE_MS:
            # Nobody is there to read a reason.
            self.lost(f"the other side has been silent for {SILENCE_MS} ms")
        elif now_ms >= self._next_ping_ms:
            self._next_ping_ms = now_ms + HEARTBEAT_MS
            self._send_first(frames.PING, _ping(now_ms, self._peer_ms))

    def take_output(self) -> list[bytes | memoryview]:
        """Remove and return the next bytes to send, in order; see `FrameQueue.take`.

        Call it again when the socket wants more, until it returns an empty list.
        """
        self._is_dirty = False
        return self._queue.take()

    def set_socket_bytes(self, size: i64) -> None:
        """Set how many taken bytes still wait for the socket."""
        self._socket_bytes = size

    # -- the link's own frames ---------------------------------------------------------------------

    def _receive_own(self, kind: i64, payload: bytes, now_ms: i64) -> None:
        if kind == frames.REFUSE:
            self.lost(f"ended by the other side: {payload.decode(errors='replace')}")
        elif not self.is_up:
            self._shake_hands(kind, payload, now_ms)
        elif kind == frames.PING:
            self._take_ping(payload, now_ms)
        else:
            # A later version would have agreed on new kinds in the handshake.
            self.close(f"the other side broke the protocol of the links: a frame of kind {kind}")

    def _take_ping(self, payload: bytes, now_ms: i64) -> None:
        if len(payload) != _PING_BYTES:
            self.close("the other side broke the protocol of the links: a ping of another length")
            return
        if self._peer_ms == 0:
            # The other side delivers no frame before it has an echo, so send one at once.
            self._next_ping_ms = now_ms
        self._peer_ms = read_i64_be(payload, 0)
        # Never a time to come, whatever the other side says.
        self._echoed_ms = max(self._echoed_ms, min(read_i64_be(payload, 8), now_ms))

    def _shake_hands(self, kind: i64, payload: bytes, now_ms: i64) -> None:
        try:
            answer = self._handshake.receive(kind, payload)
        except HandshakeError as error:
            self.close(str(error))
            return
        if answer is not None:
            self._send_first(answer[0], answer[1])
        if self._handshake.is_complete:
            self._reader.payload_max = frames.PAYLOAD_BYTES_MAX
            self.peer = self._handshake.peer
            self.is_up = True
            self._host.on_up(self)

    def _send_first(self, kind: i64, payload: bytes) -> None:
        self._queue.add_first(kind, payload)
        self._touch()

    def _touch(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._host.on_output(self)

    def _go_down(self, reason: str) -> None:
        if not self.is_down:
            self.is_up = False
            self.is_down = True
            self._host.on_down(self, reason)


def _ping(now_ms: i64, peer_ms: i64) -> bytes:
    """The payload of a ping: the sender's time, and the last one that it got (ms)."""
    out = BytesWriter()
    write_i64_be(out, now_ms)
    write_i64_be(out, peer_ms)
    return out.getvalue()
