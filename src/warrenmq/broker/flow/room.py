"""The room of a channel for deliveries: its channel-wide prefetch (protocol 9.3), and turns for consumers that share it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.flow.rotation import Rotation
from warrenmq.queues.entry import Consumer

# Outside of turns: more messages than a channel lives to see.
_NO_TURN: Final = 1 << 62


class ChannelRoom:
    """The room of one channel. Whoever delivers counts `turn_left` down, and `unacked_count` up."""

    def __init__(self) -> None:
        # The channel-wide limit, and the prefetch of consumers to come; 0 = none.
        self.prefetch: i64 = 0
        self.consumer_prefetch: i64 = 0
        # Unacked deliveries to consumers, cancelled ones included: what the limit counts (not basic.get).
        self.unacked_count: i64 = 0
        # Consumers that wait until the limit has room.
        self.rotation: Rotation = Rotation()
        # Messages until the turn of a consumer ends; whoever wants more waits in `_turn_rotation`.
        self.turn_left: i64 = _NO_TURN
        self._turn_rotation: Rotation = self.rotation

    def is_open(self) -> bool:
        """May one more message be delivered?"""
        return self.turn_left > 0 and not self._is_full()

    def wait(self, consumer: Consumer) -> bool:
        """Let `consumer`, which was refused a message, wait; False when it was not for want of this room."""
        if self._is_full():
            self.rotation.add(consumer)
        elif self.turn_left <= 0:
            self._turn_rotation.add(consumer)
        else:
            return False
        return True

    def take_back(self, consumer: Consumer) -> None:
        """A delivery to `consumer` is settled: if its own prefetch was full, it waits again."""
        consumer.unacked_count -= 1
        self.unacked_count -= 1
        if consumer.waits_in is None and not consumer.is_cancelled:
            if self.prefetch == 0:
                consumer.queue.consumer_can_take(consumer)
            else:
                self.rotation.add(consumer)

    def close_while_waited_for(self) -> None:
        """Let nobody past those who wait, if there are any, until `serve`."""
        if self.rotation.count > 0:
            self.turn_left = 0
            self._turn_rotation = self.rotation

    def serve(self, now_ms: i64) -> None:
        """Give those who wait one message each in turn, as long as there is room."""
        self.turn_left = _NO_TURN
        while not self._is_full():
            consumer = self.rotation.take_fair(self.prefetch)
            if consumer is None:
                break
            self.give_turn(consumer, self.rotation, 1, now_ms)

    def give_turn(
        self, consumer: Consumer, rotation: Rotation, message_count: i64, now_ms: i64
    ) -> None:
        """Let `consumer`, taken from `rotation`, have so many messages, or all it can take when nobody else waits there."""
        if rotation.count > 0:
            self.turn_left = message_count
            self._turn_rotation = rotation
        queue = consumer.queue
        queue.consumer_can_take(consumer)
        queue.deliver_ready(now_ms)
        self.turn_left = _NO_TURN

    def _is_full(self) -> bool:
        return self.prefetch != 0 and self.unacked_count >= self.prefetch
