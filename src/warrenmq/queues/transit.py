"""Large messages on their way from queues to sockets: how many bytes of them a node has at a time.

Prefetch counts messages and every connection has a buffer of its own, so nothing else bounds how much a hundred
connections are sent at once when a message has 16 MiB and their sockets take nothing. A message counts from the moment
its content is read for somebody who can take it, and then with all that its connection has not written. When there is
no room for the next one, it stays in its queue, and the queue goes on when something was written.

Messages of up to LARGE_BYTES are never held up: the buffer of a connection bounds those. A message that is larger than
all the room goes out when no more than half of the room is in use.

What stands still, since nobody reads its socket, takes no room from others: up to `room_bytes` of it are not counted as
in use. So there may be twice the room on the way. Beyond that others wait, until `broker/connection/stuck_sockets.py` closes
connections.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.turn import TurnShare

LARGE_BYTES: Final = 65536
# A client that works on one message for so long while others wait in its socket loses nothing.
CLOSE_AFTER_MS: Final = 15000


class Transit:
    """The room of one node, in bytes."""

    def __init__(self, room_bytes: i64) -> None:
        self.room_bytes: i64 = room_bytes
        self.used_bytes: i64 = 0
        # Part of `used_bytes` whose sockets stand still.
        self.stuck_bytes: i64 = 0
        # A socket that stands still may be closed after this time, if others want the room.
        self.close_after_ms: i64 = CLOSE_AFTER_MS
        # Queues whose head waits for room.
        self.waiting: dict[TurnShare, None] = {}

    def set_room(self, room_bytes: i64) -> None:
        """Another bound, in bytes."""
        self.room_bytes = room_bytes
        self._wake()

    def admits(self, queue: TurnShare, size: i64) -> bool:
        """May `queue` send, or read, a message of `size` bytes now? If not, it gets a turn when there is more room."""
        if size <= LARGE_BYTES:
            return True
        room = self.room_bytes
        in_use = self.used_bytes - min(self.stuck_bytes, room)
        if in_use * 2 <= room or in_use + size <= room:
            return True
        self.waiting[queue] = None
        return False

    def change(self, size: i64) -> None:
        """Count `size` bytes more on their way; negative: fewer."""
        self.used_bytes += size
        if size < 0:
            self._wake()

    def change_stuck(self, size: i64) -> None:
        """Count `size` bytes more whose sockets stand still; negative: fewer."""
        self.stuck_bytes += size
        if size > 0:
            self._wake()

    def is_wanted(self) -> bool:
        """Is there anybody who could take a message that waits for room?"""
        for queue in self.waiting:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if queue.is_wanted():
                return True
        return False

    def _wake(self) -> None:
        if len(self.waiting) > 0:
            waiting = self.waiting
            self.waiting = {}
            for queue in waiting:
                queue.on_arrival()
