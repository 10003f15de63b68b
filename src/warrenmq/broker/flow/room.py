"""The room of a channel for deliveries: channel-wide prefetch and turns at it (protocol 9.3)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.flow.rotation import Rotation
from warrenmq.queues.entry import Consumer, QueueEnd

# The value of `turn_left` outside of turns: more messages than a channel can ever deliver.
_NO_TURN: Final = 1 << 62


class ChannelRoom:
    """The room of one channel for deliveries.

    The channel counts `turn_left` down with each delivery, and `unacked_count` up unless no-ack.
    """

    def __init__(self) -> None:
        # Channel-wide limit of unacked messages; 0 = none.
        self.prefetch: i64 = 0
        # Prefetch of each consumer that starts later; 0 = none.
        self.consumer_prefetch: i64 = 0
        # Unacked deliveries to consumers, cancelled ones included; basic.get does not count. The
        # channel-wide limit applies to this number.
        self.unacked_count: i64 = 0
        # Messages that were asked for at other nodes; they have room when they come.
        self.reserved_count: i64 = 0
        # Consumers that wait until the channel-wide limit has room.
        self.rotation: Rotation = Rotation()
        # Messages until the current turn ends; a consumer that wants more waits in
        # `_turn_rotation`.
        self.turn_left: i64 = _NO_TURN
        self._turn_rotation: Rotation = self.rotation
        # Messages for which one consumer may reserve room in a round of `serve`.
        self._share: i64 = 1
        # The queue whose messages were acked one by one since it was served; None: none.
        self.acked_queue: QueueEnd | None = None

    def is_open(self) -> bool:
        """True while one more message may be delivered."""
        return self.turn_left > 0 and not self._is_full()

    def wait(self, consumer: Consumer) -> bool:
        """Let a refused `consumer` wait for this room; False if this room is not the reason."""
        if self._is_full():
            self.rotation.add(consumer)
        elif self.turn_left <= 0:
            self._turn_rotation.add(consumer)
        else:
            return False
        return True

    def reserve(self, count: i64) -> i64:
        """Keep room for at most `count` messages; returns for how many.

        What is asked for comes later, so consumers cannot take turns until the room is full: each
        of those that are served together gets at most an even share of what was free.
        """
        free: i64 = self.prefetch - self.unacked_count - self.reserved_count
        count = max(min(count, free, self._share), 0)
        self.reserved_count += count
        return count

    def take_back(self, consumer: Consumer) -> None:
        """Count a settled delivery to `consumer`; it waits again if its own prefetch was full."""
        consumer.unacked_count -= 1
        self.unacked_count -= 1
        if consumer.waits_in is None and not consumer.is_cancelled:
            if self.prefetch == 0:
                consumer.queue.consumer_can_take(consumer)
            else:
                self.rotation.add(consumer)

    def close_while_waited_for(self) -> None:
        """If consumers wait, deliver to no other consumer until `serve`."""
        if self.rotation.count > 0:
            self.turn_left = 0
            self._turn_rotation = self.rotation

    def serve(self, now_ms: i64) -> None:
        """Give waiting consumers one message each in turn, while there is room."""
        self.turn_left = _NO_TURN
        if self.rotation.count > 0:
            free: i64 = self.prefetch - self.unacked_count - self.reserved_count
            self._share = max(free // self.rotation.count, 1)
        # A consumer that cannot take anything now may wait here again at once.
        waiting_count = self.rotation.count
        idle_turns: i64 = 0
        while not self._is_full() and idle_turns <= waiting_count:
            consumer = self.rotation.take_fair(self.prefetch)
            if consumer is None:
                break
            taken = self.unacked_count + self.reserved_count
            self.give_turn(consumer, self.rotation, 1, now_ms)
            if self.unacked_count + self.reserved_count == taken:
                idle_turns += 1
            else:
                idle_turns = 0

    def serve_queue(self, queue: QueueEnd, now_ms: i64) -> None:
        """Serve who waits after a settle in `queue`: its consumers, or all that share the room."""
        if self.prefetch != 0:
            self.serve(now_ms)
        else:
            queue.deliver_ready(now_ms)

    def serve_acked(self, now_ms: i64) -> None:
        """Deliver what the room of single acks allows, once for all acks that came together."""
        queue = self.acked_queue
        if queue is not None:
            self.acked_queue = None
            self.serve_queue(queue, now_ms)

    def give_turn(
        self, consumer: Consumer, rotation: Rotation, message_count: i64, now_ms: i64
    ) -> None:
        """Deliver up to `message_count` messages to `consumer`, which was taken from `rotation`.

        If no other consumer waits in `rotation`, the consumer gets all it can take.
        """
        if rotation.count > 0:
            self.turn_left = message_count
            self._turn_rotation = rotation
        queue = consumer.queue
        queue.consumer_can_take(consumer)
        queue.deliver_ready(now_ms)
        self.turn_left = _NO_TURN

    def _is_full(self) -> bool:
        return self.prefetch != 0 and self.unacked_count + self.reserved_count >= self.prefetch
