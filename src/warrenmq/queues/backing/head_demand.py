"""The demand for a queue's head: consumers, clients that use basic.get, waiting reader groups."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.waiting_consumers import ConsumerCircle
from warrenmq.queues.entry import Consumer
from warrenmq.queues.hand_out_gate import OPEN, HandOutGate

# A client that uses basic.get counts as a consumer for this long after each get (ms).
GET_DEMAND_MS: Final = 1000


class HeadDemand:
    """The demand for the messages of one queue. Times are those of the node's turns (ms)."""

    def __init__(self, is_single_active: bool = False, is_quorum: bool = False) -> None:
        # A quorum queue's next active consumer is the oldest one, whatever the priorities, as in
        # RabbitMQ.
        self._takes_oldest: bool = is_quorum
        # All consumers, the oldest first.
        self.consumers: list[Consumer] = []
        self.had_consumer: bool = False
        # Only one consumer gets messages; when it is gone, another one takes over.
        self.is_single_active: bool = is_single_active
        self._active: Consumer | None = None
        # The consumers that have room and wait for a message.
        self.circle: ConsumerCircle = ConsumerCircle()
        # Called once with the time, when the head is in memory or the queue is empty.
        self.waiters: list[Callable[[int], None]] = []
        # Callbacks of polling reader groups, each called once when messages become ready.
        self.ready_watchers: list[Callable[[], None]] = []
        # Reader groups that take back what they had reserved before a start or another master.
        self.restoring_count: i64 = 0
        # Returns of messages that take several turns, and are not complete.
        self.return_count: i64 = 0
        # Shuts when another node may have become the master, or the queue is paused;
        # `LeveledQueue.set_gate` changes it.
        self.gate: HandOutGate = OPEN
        # Somebody asked for the head while the gate was shut, and is called when it opens.
        self.is_shut: bool = False
        # When a client or reader last asked for the head.
        self.wanted_ms: i64 = -GET_DEMAND_MS
        # When the queue last had its share of a turn.
        self.now_ms: i64 = 0

    @property
    def is_restoring(self) -> bool:
        """Whether a reader group takes back what it had reserved: the head may be part of it."""
        return self.restoring_count > 0

    @property
    def awaits_older(self) -> bool:
        """Whether deliveries wait: messages are still to come that are older than the head."""
        return self.is_restoring or self.return_count > 0

    # -- consumers ---------------------------------------------------------------------------------

    def is_active(self, consumer: Consumer) -> bool:
        """Whether `consumer` gets messages, and does not wait to take over."""
        return not self.is_single_active or self._active is consumer

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, which waits for messages from now on."""
        self.had_consumer = True
        self.consumers.append(consumer)
        if self.is_single_active:
            if self._active is not None:
                return
            self._active = consumer
        self.circle.add(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Remove a consumer that waits nowhere; True if another one has taken over."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        if self._active is not consumer:
            return False
        self._active = None
        for other in self.consumers:
            if self._active is None or (
                not self._takes_oldest and other.priority > self._active.priority
            ):
                self._active = other
        if self._active is None:
            return False
        self.circle.add(self._active)
        return True

    def take_all(self) -> list[Consumer]:
        """Remove and cancel all consumers."""
        consumers = self.release_all()
        for consumer in consumers:
            consumer.is_cancelled = True
        return consumers

    def release_all(self) -> list[Consumer]:
        """Remove all consumers, which may be added again."""
        consumers = self.consumers
        self.consumers = []
        self._active = None
        for consumer in consumers:
            consumer.stop_waiting()
        return consumers

    # -- the head ----------------------------------------------------------------------------------

    def is_held(self, now_ms: i64) -> bool:
        """Whether nothing may be handed out; whoever ends that asks for a turn of the queue."""
        self.is_shut = now_ms >= self.gate.until_ms
        return self.awaits_older or self.is_shut

    def exists(self) -> bool:
        """Whether a consumer, client or reader wants the head, at this moment or soon."""
        return (
            len(self.consumers) > 0
            or len(self.waiters) > 0
            or self.now_ms - self.wanted_ms < GET_DEMAND_MS
        )

    def has_taker(self) -> bool:
        """Whether a consumer or waiter could take the head at this moment."""
        return self.circle.has_ready() or len(self.waiters) > 0

    def serve_waiters(self, now_ms: i64) -> None:
        """Call all waiters: the head is in memory, or the queue is empty or deleted.

        A waiter checks the head, and may wait again.
        """
        waiters = self.waiters
        self.waiters = []
        for waiter in waiters:
            waiter(now_ms)

    def notify_ready(self) -> None:
        """Call the watchers: messages have become ready, or the queue is deleted."""
        watchers = self.ready_watchers
        self.ready_watchers = []
        for watcher in watchers:
            watcher()
