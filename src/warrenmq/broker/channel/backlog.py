"""Frames that a channel has received and may not handle yet.

There are two reasons to keep frames, and a channel has one of them at a time:

suspended   The channel waits until something it asked for is durable or written: all frames wait.
deferring   An alarm is on and the first kept frame is a publish (`alarms.py`). Later frames wait,
            but settles (basic.ack, nack, reject) are handled at once, so that an alarm does not
            stop the very consumers that would end it. Settles wait like all other frames where a
            client could notice that they were handled early: in a transaction, and behind a kept
            method that changes the meaning of a settle.

Frames are kept in the order of their arrival and handled in that order once the reason has passed.
`Throttle` counts their bytes for the whole connection and stops reading when there are too many.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from warrenmq.broker.channel.channel_host import ChannelHost
from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.wire.errors import ChannelException, ConnectionException
from warrenmq.wire.frames import FRAME_METHOD
from warrenmq.wire.methods import (
    BASIC_ACK,
    BASIC_NACK,
    BASIC_RECOVER,
    BASIC_RECOVER_ASYNC,
    BASIC_REJECT,
    CHANNEL_CLOSE,
    TX_SELECT,
    decode_method,
)

# Memory of a kept frame beside its payload (bytes): a pair, a bytes object, a place in the list.
_FRAME_COST_BYTES: Final = 112
# The list is cut when at least this many of its frames were taken.
_TAKEN_MIN: Final = 256


class Backlog:
    """The kept frames of one channel.

    Channel and connection are arguments of the methods, not attributes: a reference cycle would
    keep both in memory after their end.
    """

    def __init__(self) -> None:
        self._frames: list[tuple[i64, bytes]] = []
        # Index of the next frame to take; all frames before it were taken. A channel that waits for
        # each of thousands of kept declarations takes one at a time; taking one must not move the
        # rest.
        self._next: i64 = 0
        self._size_bytes: i64 = 0
        self._is_deferring: bool = False
        self._settles_pass: bool = False

    def defer(self, client: ChannelHost, channel: FlowHost, publish: bytes) -> None:
        """Keep the method frame `publish` and all later frames until the alarms are over."""
        channel.is_suspended = True
        self._is_deferring = True
        self._settles_pass = channel.transaction is None
        self.put_back(client, publish)
        client.throttle.defer(client, channel)

    def put_back(self, client: ChannelHost, method: bytes) -> None:
        """Keep the method frame that is being handled: it is handled again before all others."""
        if self._next > 0:
            # The frame was taken last, and has its place.
            self._next -= 1
            self._frames[self._next] = (FRAME_METHOD, method)
            self._count(client, method)
        else:
            self._keep(client, FRAME_METHOD, method)

    def add(self, client: ChannelHost, channel: FlowHost, kind: i64, payload: bytes) -> None:
        """Keep a frame of a suspended channel, or handle it now if it is a settle that may pass."""
        may_pass = self._is_deferring and kind == FRAME_METHOD and self._settles_pass
        if may_pass and self._is_settled(client, channel, payload):
            return
        self._keep(client, kind, payload)

    def release(self) -> None:
        """End the deferring, because the alarms are over: settles keep their places again."""
        self._is_deferring = False

    def take(self, client: ChannelHost) -> tuple[i64, bytes] | None:
        """Remove and return the oldest kept frame, to be handled now; None when there is none."""
        if self._next >= len(self._frames):
            return None
        frame = self._frames[self._next]
        self._frames[self._next] = (0, b"")
        self._next += 1
        self._uncount(client, len(frame[1]) + _FRAME_COST_BYTES)
        if self._next >= _TAKEN_MIN and self._next * 2 >= len(self._frames):
            # Keep the place of the frame just taken: `defer` may put the frame back.
            self._frames = self._frames[self._next - 1 :]
            self._next = 1
        return frame

    def let_settles_pass(self, client: ChannelHost, channel: FlowHost) -> None:
        """Handle settles among the kept frames now, if the channel defers publishes again."""
        if not self._is_deferring or not self._settles_pass:
            return
        first: i64 = self._next + 1
        behind = self._frames[first:]
        self._frames = self._frames[self._next : first]
        self._next = 0
        for kind, payload in behind:
            self._uncount(client, len(payload) + _FRAME_COST_BYTES)
            self.add(client, channel, kind, payload)

    def drop(self, client: ChannelHost) -> None:
        """Discard all frames, because the channel is closed."""
        self._frames = []
        self._next = 0
        self._is_deferring = False
        self._uncount(client, self._size_bytes)

    def _keep(self, client: ChannelHost, kind: i64, payload: bytes) -> None:
        if self._next == len(self._frames):
            self._frames = []
            self._next = 0
        self._frames.append((kind, payload))
        self._count(client, payload)

    def _count(self, client: ChannelHost, payload: bytes) -> None:
        size: i64 = len(payload) + _FRAME_COST_BYTES
        self._size_bytes += size
        client.node.memory_account.unfinished_bytes += size
        client.throttle.count(client, size)

    def _uncount(self, client: ChannelHost, size: i64) -> None:
        self._size_bytes -= size
        client.node.memory_account.unfinished_bytes -= size
        client.throttle.uncount(client, size)

    def _is_settled(self, client: ChannelHost, channel: FlowHost, payload: bytes) -> bool:
        """Handle a settle now; False for other methods and for a faulty settle.

        The fault of a settle must be reported in its turn, so the frame is kept.
        """
        method_id: i64 = i64(read_i32_be(payload, 0)) if len(payload) >= 4 else 0
        if method_id in (BASIC_ACK, BASIC_NACK, BASIC_REJECT):
            try:
                client.channel_method(channel.number, decode_method(payload, 0, len(payload)))
            except (ChannelException, ConnectionException):
                self._settles_pass = False
                return False
            return True
        if method_id in (TX_SELECT, BASIC_RECOVER, BASIC_RECOVER_ASYNC, CHANNEL_CLOSE):
            self._settles_pass = False
        return False
