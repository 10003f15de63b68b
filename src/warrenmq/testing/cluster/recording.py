"""What clients of a simulated cluster send and receive, as a history that the checker judges.

A queue is named NAME#BIRTH: a queue that is deleted and declared again is another one. Moments are
the simulation's own: ms of its clock, with a count of the events in each.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Final

from warrenmq.testing.checker.events import (
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
    Return,
    SessionEnd,
    SessionStart,
    SyncCall,
    SyncReply,
)
from warrenmq.testing.checker.facts import Facts
from warrenmq.testing.checker.verdict import judge
from warrenmq.testing.checker.violation import Rule
from warrenmq.testing.models.messages import Violation, body_of

# How long around the start of a fault acks may be undone, and flags be set: longer than the silence
# after which a link is down, and than a commit takes.
WINDOW_MS: Final = 6000
_NUMBER_BYTES: Final = 4


class Recording:
    """The history so far; `now_ms` is set by the simulation."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.story: list[str] | None = None
        # How often a fault excused what would be a violation, by name.
        self.counts: Counter[str] = Counter()
        # Queues of which messages may leave without a trace: purged, consumed without acks, or
        # perhaps deleted.
        self.leaky: set[str] = set()
        # Sessions with a queue of another node, each with the queue.
        self._far: dict[str, str] = {}
        # Queues to which messages may have returned that were on their way to a client that has
        # left. Nobody has seen them, so they are not marked as redelivered, and others may have
        # overtaken them.
        self._overtaken: set[str] = set()
        self._events: list[AnyEvent] = []
        self._at_us = 0
        self._numbers = 0
        self._faults = 0
        # Transient messages, with the queues of each.
        self._transient: dict[str, tuple[str, ...]] = {}
        # Queues whose node has crashed, each with the moment of the last crash.
        self._crashed_us: dict[str, int] = {}
        self._published_us: dict[str, int] = {}

    def _now_us(self) -> int:
        self._at_us = max(self._at_us + 1, self.now_ms * 1000)
        return self._at_us

    def tell(self, text: str) -> None:
        """Add a line to the story, if one is wanted."""
        if self.story is not None:
            self.story.append(text)

    def _add(self, event: AnyEvent) -> None:
        self._events.append(event)
        if self.story is not None:
            fields = [str(getattr(event, name)) for name in event.__struct_fields__[1:]]
            self.story.append(f"            {type(event).__name__} {' '.join(fields)}")

    # -- publishers --------------------------------------------------------------------------------

    def next_body(self, size: int) -> tuple[str, bytes]:
        """The name and the body of a new message of `size` bytes."""
        self._numbers += 1
        return f"m{self._numbers}", body_of(self._numbers, size)

    def published(
        self,
        message: str,
        body: bytes,
        session: str,
        sequence: int,
        queues: tuple[str, ...],
        is_persistent: bool,
    ) -> None:
        """A message is about to be sent to `queues`."""
        at_us = self._now_us()
        self._published_us[message] = at_us
        if not is_persistent:
            self._transient[message] = queues
        self._add(Publish(at_us, message, session, session, sequence, queues, zlib.crc32(body)))

    def confirmed(self, message: str) -> None:
        """The broker has confirmed a message, or committed its transaction."""
        self._add(Confirm(self._now_us(), message))

    def nacked(self, message: str) -> None:
        """The broker has refused a message."""
        self._add(Nack(self._now_us(), message))

    def returned(self, message: str, code: int) -> None:
        """The broker has returned a message as unroutable."""
        self._add(Return(self._now_us(), message, code))

    # -- consumers ---------------------------------------------------------------------------------

    def started(self, session: str, queue: str, node: str, prefetch: int, is_far: bool) -> None:
        """A consumer is about to subscribe, or to get a message; `is_far`: from another node."""
        if is_far:
            self._far[session] = queue
        self._add(SessionStart(self._now_us(), session, queue, node, prefetch))

    def leaves(self, session: str) -> None:
        """A consumer takes no more messages."""
        if session in self._far:
            self._overtaken.add(self._far[session])

    def ended(self, session: str, reason: str = LOST) -> None:
        """A session is over."""
        self.leaves(session)
        self._add(SessionEnd(self._now_us(), session, reason))

    def delivered(self, session: str, tag: int, redelivered: bool, body: bytes) -> None:
        """A consumer has got a message."""
        number = int.from_bytes(body[:_NUMBER_BYTES], "big")
        at_us = self._now_us()
        self._add(Delivery(at_us, session, tag, f"m{number}", redelivered, zlib.crc32(body)))

    def acked(self, session: str, tag: int) -> None:
        """A consumer is about to ack or to drop a message."""
        self._add(Ack(self._now_us(), session, tag))

    def requeued(self, session: str, tag: int) -> None:
        """A consumer is about to return a message."""
        self._add(Requeue(self._now_us(), session, tag))

    def called(self, session: str) -> None:
        """A consumer asks the node of its queue something, behind all its acks."""
        self._add(SyncCall(self._now_us(), session))

    def answered(self, session: str) -> None:
        """The node of the queue has answered."""
        self._add(SyncReply(self._now_us(), session))

    # -- faults, the end ---------------------------------------------------------------------------

    def fault(self, kind: str, node: str) -> str:
        """A fault of the network begins; returns its name."""
        return self._fault(kind, node, None)

    def crashed(self, node: str, queues: tuple[str, ...]) -> str:
        """A node crashes, which has `queues`; returns the name of the fault."""
        for queue in queues:
            self._crashed_us[queue] = self._at_us
        return self._fault("crash", node, queues)

    def _fault(self, kind: str, node: str, queues: tuple[str, ...] | None) -> str:
        self._faults += 1
        name = f"fault {self._faults}"
        is_crash = queues is not None and len(queues) > 0
        self._add(
            FaultStart(self._now_us(), name, kind, node, None, is_crash, queues if queues else ())
        )
        return name

    def fault_over(self, name: str) -> None:
        """A fault is over."""
        self._add(FaultEnd(self._now_us(), name))

    def publishing_over(self) -> None:
        """No publisher publishes any more, and nothing is on its way."""
        self._far.clear()
        self._add(PublishingEnd(self._now_us()))

    def drained(self, queue: str) -> None:
        """A queue is empty: what it still had was delivered."""
        if queue not in self.leaky:
            self._add(QueueDrained(self._now_us(), queue))

    # -- verdict -----------------------------------------------------------------------------------

    def judge(self) -> None:
        """Raise Violation if a promise was broken."""
        events = [event for event in self._events if not self._is_void(event)]
        verdict = judge(events, WINDOW_MS)
        self.counts.update(verdict.counts)
        for broken in verdict.violations:
            if broken.rule == Rule.ORDER and broken.queue in self._overtaken:
                self.counts["orders changed by unseen messages"] += 1
            else:
                raise Violation(broken.rule.name.lower(), broken.line(0))
        _judge_repeats(Facts(events))

    def _is_void(self, event: AnyEvent) -> bool:
        """Whether an event is the confirm of a transient message that a crash may have taken."""
        if not isinstance(event, Confirm) or event.message not in self._transient:
            return False
        published_us = self._published_us[event.message]
        return any(
            self._crashed_us.get(queue, 0) >= published_us
            for queue in self._transient[event.message]
        )


def _judge_repeats(facts: Facts) -> None:
    """Rule 6 for queues whose node has not crashed: faults of the network excuse nothing."""
    for message in facts.messages.values():
        for queue, deliveries in message.deliveries.items():
            settled = min(deliveries, key=lambda each: each.settled_us)
            until_us = settled.settled_us + WINDOW_MS * 1000
            if facts.lone_crash_between(queue, settled.at_us, until_us):
                continue
            for delivery in deliveries:
                if delivery is not settled and delivery.at_us > settled.settled_us:
                    raise Violation(
                        "again", f"{message.publish.message} was acked, and came again from {queue}"
                    )
