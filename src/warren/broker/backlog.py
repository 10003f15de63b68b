"""Frames that a channel has received and may not handle yet.

There are two reasons, and a channel has one of them at a time:

suspended   it waits until something it asked for is durable or written: every frame behind that waits
held        an alarm is on and the first frame kept is a publish (`alarms.py`): what follows waits too, but settles
            (basic.ack, nack, reject) are handled at once, so that an alarm does not stop the very consumers
            that would end it. Settles wait like everything else where handling them early could be noticed: in
            a transaction, and behind a kept method that changes what a settle means.

Frames are kept in the order of their arrival and handled in that order when the reason is gone. `Throttle` counts
their bytes for the whole connection and stops the reading when they become many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from warren.wire.errors import ChannelException, ConnectionException
from warren.wire.frames import FRAME_METHOD
from warren.wire.methods import (
    BASIC_ACK,
    BASIC_NACK,
    BASIC_RECOVER,
    BASIC_RECOVER_ASYNC,
    BASIC_REJECT,
    CHANNEL_CLOSE,
    TX_SELECT,
    decode_method,
)

if TYPE_CHECKING:
    from warren.broker.channel import Channel

# What a kept frame costs beside its payload (bytes): a pair, a bytes object, a place in the list.
_FRAME_COST_BYTES: Final = 112
# So many frames that were taken leave the list together, at least.
_TAKEN_MIN: Final = 256


class Backlog:
    """The kept frames of one channel, which is an argument everywhere: a cycle would outlive the channel."""

    def __init__(self) -> None:
        self._frames: list[tuple[i64, bytes]] = []
        # Those before this one were taken. A channel that waits for each of thousands of kept declarations takes one
        # at a time, and the others must not be moved for it.
        self._next: i64 = 0
        self._size_bytes: i64 = 0
        self._is_held: bool = False
        self._settles_pass: bool = False

    def hold(self, channel: Channel, publish: bytes) -> None:
        """Keep this publish method and what follows it, until the alarms are over."""
        channel.is_suspended = True
        self._is_held = True
        self._settles_pass = channel.transaction is None
        if self._next > 0:
            # It was the last one taken.
            self._next -= 1
            self._frames[self._next] = (FRAME_METHOD, publish)
            self._count(channel, publish)
        else:
            self._keep(channel, FRAME_METHOD, publish)
        channel.connection.throttle.hold(channel.connection, channel)

    def add(self, channel: Channel, kind: i64, payload: bytes) -> None:
        """A frame came while the channel is suspended or held."""
        may_pass = self._is_held and kind == FRAME_METHOD and self._settles_pass
        if may_pass and self._is_settled(channel, payload):
            return
        self._keep(channel, kind, payload)

    def release(self) -> None:
        """The alarms are over: settles keep their places again."""
        self._is_held = False

    def take(self, channel: Channel) -> tuple[i64, bytes] | None:
        """The first of the kept frames, if there is one; it is to be handled now."""
        if self._next >= len(self._frames):
            return None
        frame = self._frames[self._next]
        self._frames[self._next] = (0, b"")
        self._next += 1
        self._uncount(channel, len(frame[1]) + _FRAME_COST_BYTES)
        if self._next >= _TAKEN_MIN and self._next * 2 >= len(self._frames):
            # The place of the one just taken stays, should it have to be put back.
            self._frames = self._frames[self._next - 1 :]
            self._next = 1
        return frame

    def let_settles_pass(self, channel: Channel) -> None:
        """The channel was suspended again with frames left; if it is held, settles among them are handled now."""
        if not self._is_held or not self._settles_pass:
            return
        first: i64 = self._next + 1
        behind = self._frames[first:]
        self._frames = self._frames[self._next : first]
        self._next = 0
        for kind, payload in behind:
            self._uncount(channel, len(payload) + _FRAME_COST_BYTES)
            self.add(channel, kind, payload)

    def drop(self, channel: Channel) -> None:
        """Forget all frames: the channel is closed."""
        self._frames = []
        self._next = 0
        self._is_held = False
        self._uncount(channel, self._size_bytes)

    def _keep(self, channel: Channel, kind: i64, payload: bytes) -> None:
        if self._next == len(self._frames):
            self._frames = []
            self._next = 0
        self._frames.append((kind, payload))
        self._count(channel, payload)

    def _count(self, channel: Channel, payload: bytes) -> None:
        size: i64 = len(payload) + _FRAME_COST_BYTES
        self._size_bytes += size
        channel.connection.broker.memory_account.unfinished_bytes += size
        channel.connection.throttle.count(channel.connection, size)

    def _uncount(self, channel: Channel, size: i64) -> None:
        self._size_bytes -= size
        channel.connection.broker.memory_account.unfinished_bytes -= size
        channel.connection.throttle.uncount(channel.connection, size)

    def _is_settled(self, channel: Channel, payload: bytes) -> bool:
        """Handle a settle now. False for all other methods, and for a settle whose fault must be found in its turn."""
        method_id: i64 = i64(read_i32_be(payload, 0)) if len(payload) >= 4 else 0
        if method_id in (BASIC_ACK, BASIC_NACK, BASIC_REJECT):
            try:
                channel.connection.channel_method(channel, decode_method(payload, 0, len(payload)))
            except (ChannelException, ConnectionException):
                self._settles_pass = False
                return False
            return True
        if method_id in (TX_SELECT, BASIC_RECOVER, BASIC_RECOVER_ASYNC, CHANNEL_CLOSE):
            self._settles_pass = False
        return False
