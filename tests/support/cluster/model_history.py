"""Histories of a model broker: correct by construction, or with one planted bug.

The model has what a checker must not complain about: messages on their way when a connection
breaks, a client that notices later than the broker, acks and flags that a crash undoes, publishes
that are enqueued after their publisher has reconnected.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from simulator.checker.events import (
    CLOSED,
    LOST,
    Ack,
    AnyEvent,
    Confirm,
    Delivery,
    FaultEnd,
    FaultStart,
    Nack,
    Publish,
    PublishingEnd,
    QueueDrained,
    Requeue,
    SessionEnd,
    SessionStart,
    SyncCall,
    SyncReply,
)

QUEUES = ("q0", "q1")
PUBLISHERS = ("p0", "p1")
CONSUMERS = 3
STEP_US = 1000
# Acks that are younger may be undone by a crash.
UNDONE_MS = 50
# What the broker may do wrong; each is found by one rule.
BUGS = ("loses", "swaps", "forgets the flag", "flags too many", "repeats", "settles another")


@dataclass
class ModelMessage:
    """A message in a queue; `seq` is its position."""

    seq: int
    name: str
    redelivered: bool = False
    acked_us: int = 0


@dataclass
class PublisherLink:
    """A channel of a publisher: names on their way to the broker, answers on their way back."""

    session: str
    sent: deque[tuple[str, tuple[str, ...]]] = field(default_factory=deque)
    answers: deque[tuple[str, bool]] = field(default_factory=deque)


@dataclass
class ConsumerLink:
    """A channel of a consumer: what both sides have sent, and what the broker counts as unacked."""

    session: str
    queue: str
    prefetch: int
    unacked: dict[int, ModelMessage] = field(default_factory=dict)
    # Deliveries (tag, message, redelivered) and replies (tag 0) that the client has not read.
    down: deque[tuple[int, str, bool]] = field(default_factory=deque)
    # Acks (tag, True), requeues (tag, False) and calls (0, True) that the broker has not read.
    up: deque[tuple[int, bool]] = field(default_factory=deque)
    read: list[int] = field(default_factory=list)
    next_tag: int = 1
    is_open: bool = True
    is_calling: bool = False


class ModelHistory:
    """Runs the model by a seed; `events` is the history."""

    def __init__(self, seed: int, bug: str = "") -> None:
        self.random = random.Random(seed)
        self.bug = bug
        # The bug has shown itself to clients.
        self.is_broken = False
        self.events: list[AnyEvent] = []
        self.now_us = 1
        self.number = 0
        self.seq = 0
        self.ready: dict[str, list[ModelMessage]] = {queue: [] for queue in QUEUES}
        self.acked: dict[str, list[ModelMessage]] = {queue: [] for queue in QUEUES}
        self.publishers = [PublisherLink(f"{name}-0") for name in PUBLISHERS]
        # Broken connections of publishers, of which the broker has not read everything.
        self.leftovers: list[PublisherLink] = []
        self.consumers: list[ConsumerLink] = []

    def run(self, steps: int = 300) -> list[AnyEvent]:
        """Run the model and drain it; returns the history."""
        for number in range(CONSUMERS):
            self.subscribe(QUEUES[number % len(QUEUES)])
        # Frequent steps stand several times.
        actions = [self.publish, self.enqueue, self.deliver, self.receive, self.ack] * 6
        actions += [self.answer, self.handle] * 8
        actions += [self.requeue, self.call, self.enqueue_leftover] * 2
        actions += [self.break_consumer, self.notice, self.break_publisher]
        for _ in range(steps):
            self.random.choice(actions)()
            if self.random.random() < 0.004:
                self.crash()
        self.finish()
        return self.events

    def at(self) -> int:
        """The moment of the next event."""
        self.now_us += self.random.randrange(1, STEP_US)
        return self.now_us

    # -- publishers --------------------------------------------------------------------------------

    def publish(self) -> None:
        self.number += 1
        link = self.random.choice(self.publishers)
        name = f"m{self.number}"
        queues = self.random.choice([QUEUES[:1], QUEUES[1:], QUEUES])
        publisher = link.session.partition("-")[0]
        self.events.append(
            Publish(self.at(), name, publisher, link.session, self.number, queues, self.number)
        )
        link.sent.append((name, queues))

    def enqueue(self) -> None:
        self._enqueue(self.random.choice(self.publishers))

    def enqueue_leftover(self) -> None:
        if self.leftovers:
            self._enqueue(self.random.choice(self.leftovers))

    def _enqueue(self, link: PublisherLink) -> None:
        if not link.sent:
            return
        name, queues = link.sent.popleft()
        is_taken = self.random.random() < 0.95
        link.answers.append((name, is_taken))
        if not is_taken and self.random.random() < 0.5:
            return
        for queue in queues:
            if is_taken and self._breaks("loses"):
                continue
            self.seq += 1
            self.ready[queue].append(ModelMessage(self.seq, name))
            if len(self.ready[queue]) > 1 and self._breaks("swaps"):
                self.ready[queue][-2:] = self.ready[queue][:-3:-1]

    def answer(self) -> None:
        link = self.random.choice(self.publishers)
        if link.answers:
            name, is_taken = link.answers.popleft()
            self.events.append(Confirm(self.at(), name) if is_taken else Nack(self.at(), name))

    def break_publisher(self) -> None:
        number = self.random.randrange(len(self.publishers))
        self.leftovers.append(self.publishers[number])
        self.number += 1
        self.publishers[number] = PublisherLink(f"{PUBLISHERS[number]}-{self.number}")

    # -- consumers ---------------------------------------------------------------------------------

    def subscribe(self, queue: str) -> ConsumerLink:
        self.number += 1
        link = ConsumerLink(f"c{self.number}", queue, self.random.randrange(1, 5))
        self.consumers.append(link)
        self.events.append(SessionStart(self.at(), link.session, queue, "n0", link.prefetch))
        return link

    def deliver(self) -> None:
        link = self.random.choice(self.consumers)
        ready = self.ready[link.queue]
        if not link.is_open or not ready or len(link.unacked) >= link.prefetch:
            return
        message = ready.pop(0)
        redelivered = message.redelivered
        if redelivered and self._breaks("forgets the flag"):
            redelivered = False
        elif not redelivered and self._breaks("flags too many"):
            redelivered = True
        link.down.append((link.next_tag, message.name, redelivered))
        link.unacked[link.next_tag] = message
        link.next_tag += 1

    def receive(self, link: ConsumerLink | None = None) -> None:
        link = link or self.random.choice(self.consumers)
        if not link.down:
            return
        tag, name, redelivered = link.down.popleft()
        if tag == 0:
            link.is_calling = False
            self.events.append(SyncReply(self.at(), link.session))
            return
        number = int(name.removeprefix("m"))
        self.events.append(Delivery(self.at(), link.session, tag, name, redelivered, number))
        link.read.append(tag)

    def ack(self) -> None:
        self._settle(True)

    def requeue(self) -> None:
        self._settle(False)

    def _settle(self, is_ack: bool) -> None:
        link = self.random.choice(self.consumers)
        if link.read:
            tag = link.read.pop(self.random.randrange(len(link.read)))
            kind = Ack if is_ack else Requeue
            self.events.append(kind(self.at(), link.session, tag))
            link.up.append((tag, is_ack))

    def call(self) -> None:
        link = self.random.choice(self.consumers)
        if not link.is_calling:
            link.is_calling = True
            self.events.append(SyncCall(self.at(), link.session))
            link.up.append((0, True))

    def handle(self) -> None:
        link = self.random.choice(self.consumers)
        if not link.up or not link.is_open:
            return
        tag, is_ack = link.up.popleft()
        if tag == 0:
            link.down.append((0, "", False))
        elif not is_ack:
            self._put_back(link.queue, [link.unacked.pop(tag)])
        elif len(link.unacked) > 1 and self._breaks("settles another"):
            other = next(each for each in link.unacked if each != tag)
            mine, link.unacked[tag] = link.unacked[tag], link.unacked[other]
            self._forget(link, tag)
            link.unacked[other] = mine
        else:
            self._forget(link, tag)

    def _forget(self, link: ConsumerLink, tag: int) -> None:
        message = link.unacked.pop(tag)
        message.acked_us = self.now_us
        self.acked[link.queue].append(message)

    def _put_back(self, queue: str, messages: list[ModelMessage]) -> None:
        for message in messages:
            message.redelivered = True
        self.ready[queue] = sorted([*self.ready[queue], *messages], key=lambda each: each.seq)

    def break_consumer(self) -> None:
        """The broker loses a connection; the client still reads, and notices later."""
        link = self.random.choice(self.consumers)
        if link.is_open:
            link.is_open = False
            self._put_back(link.queue, list(link.unacked.values()))
            link.unacked.clear()
            for queue, acked in self.acked.items():
                if acked and self._breaks("repeats"):
                    self._put_back(queue, [acked.pop(0)])

    def notice(self) -> None:
        """A client notices that its connection is broken, and subscribes again."""
        for link in list(self.consumers):
            if not link.is_open:
                self.consumers.remove(link)
                self.events.append(SessionEnd(self.at(), link.session, LOST))
                self.subscribe(link.queue)

    # -- faults and the end ------------------------------------------------------------------------

    def crash(self) -> None:
        """The only node dies and restarts: recent acks are undone, everything is redelivered."""
        self.number += 1
        fault = f"crash {self.number}"
        self.events.append(FaultStart(self.at(), fault, "kill", "n0", None, True))
        for link in self.consumers:
            link.is_open = False
            self._put_back(link.queue, list(link.unacked.values()))
            link.unacked.clear()
        for queue, acked in self.acked.items():
            young = [each for each in acked if each.acked_us > self.now_us - UNDONE_MS * 1000]
            self.acked[queue] = [each for each in acked if each not in young]
            self._put_back(queue, [each for each in young if self.random.random() < 0.5])
        for queue in QUEUES:
            self._put_back(queue, [])
            for message in self.ready[queue]:
                # Flags are exact, lost or set on everything.
                message.redelivered = self.random.choice([True, message.redelivered, False])
        self.leftovers = []
        for number in range(len(self.publishers)):
            self.publishers[number].sent.clear()
            self.break_publisher()
        self.leftovers = []
        self.events.append(FaultEnd(self.at(), fault))

    def finish(self) -> None:
        """End publishing, close all consumers, drain all queues."""
        self.events.append(PublishingEnd(self.at()))
        for link in self.leftovers + self.publishers:
            while link.sent:
                self._enqueue(link)
        for consumer in self.consumers:
            self._put_back(consumer.queue, list(consumer.unacked.values()))
            reason = CLOSED if consumer.is_open else LOST
            self.events.append(SessionEnd(self.at(), consumer.session, reason))
        for queue, ready in self.ready.items():
            drain = self.subscribe(queue)
            for message in list(ready):
                drain.down.append((drain.next_tag, message.name, message.redelivered))
                self.receive(drain)
                self.events.append(Ack(self.at(), drain.session, drain.next_tag))
                drain.next_tag += 1
            self.events.append(QueueDrained(self.at(), queue))

    def _breaks(self, bug: str) -> bool:
        """Whether the planted bug strikes here."""
        if self.bug != bug or self.random.random() < 0.5:
            return False
        self.is_broken = True
        return True
