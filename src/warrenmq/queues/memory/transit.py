"""Large messages in transit from queues to sockets: how many bytes a node may have on the way.

Prefetch counts messages, and every connection has a buffer of its own. Without this bound, a
hundred connections could be sent any number of bytes at once when a message has 16 MiB and their
sockets take nothing. A message counts from the moment its content is read for a consumer that can
take it, and then together with all that its connection has not written. Without room, the next
message stays in its queue, and the queue resumes when something was written.

Messages of up to LARGE_BYTES never wait: the buffer of a connection bounds those. A message that is
larger than the whole room is sent when no more than half of the room is in use.

Bytes that stand still, since a client does not read its socket, take no room from others: up to
`room_bytes` of them are not counted as in use. Twice the room may thus be on the way. Beyond that
other messages wait, until `broker/connection/stuck_sockets.py` closes connections.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.turn import TurnShare

# Messages of at most this size (bytes) never wait for room.
LARGE_BYTES: Final = 65536
# For this long (ms), a client may work on one message while others wait in its socket: its
# connection is not closed.
CLOSE_AFTER_MS: Final = 15000


class Transit:
    """The room of one node for large messages in transit, in bytes."""

    def __init__(self, room_bytes: i64) -> None:
        self.room_bytes: i64 = room_bytes
        self.used_bytes: i64 = 0
        # Part of `used_bytes` that belongs to sockets that stand still.
        self.stuck_bytes: i64 = 0
        # A socket that stands still for this long (ms) may be closed, if others want the room.
        self.close_after_ms: i64 = CLOSE_AFTER_MS
        # Queues whose head waits for room.
        self.waiting: dict[TurnShare, None] = {}

    def set_room(self, room_bytes: i64) -> None:
        """Set the room, in bytes, and wake queues that wait for room."""
        self.room_bytes = room_bytes
        self._wake()

    def admits(self, queue: TurnShare, size: i64) -> bool:
        """Whether `queue` may send or read a message of `size` bytes.

        If not, it gets a turn when there is more room.
        """
        if size <= LARGE_BYTES:
            return True
        room = self.room_bytes
        in_use = self.used_bytes - min(self.stuck_bytes, room)
        if in_use * 2 <= room or in_use + size <= room:
            return True
        self.waiting[queue] = None
        return False

    def change(self, size: i64) -> None:
        """Count `size` more bytes in transit; a negative `size` counts fewer."""
        self.used_bytes += size
        if size < 0:
            self._wake()

    def change_stuck(self, size: i64) -> None:
        """Count `size` more bytes of sockets that stand still; a negative `size` counts fewer."""
        self.stuck_bytes += size
        if size > 0:
            self._wake()

    def is_wanted(self) -> bool:
        """Whether a consumer or waiter could take a message that waits for room."""
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
