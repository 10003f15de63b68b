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
    CopyMessage,
    CopyReport,
    Delivery,
    EpochConfirm,
    FaultEnd,
    FaultStart,
    MasterReport,
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
from warrenmq.testing.cluster.moves import Move, Moves, SentMessages
from warrenmq.testing.models.messages import Violation, body_of

# How long around the start of a fault acks may be undone, and flags be set: longer than the silence
# after which a link is down, and than a commit takes.
WINDOW_MS: Final = 6000
_NUMBER_BYTES: Final = 4


def life_name(name: bytes, birth: int) -> str:
    """The name of one life of a queue in a history."""
    return f"{name.decode()}#{birth}"


def message_name(body: bytes) -> str:
    """The name of the message with this body, which `Recording.next_body` has made."""
    return f"m{int.from_bytes(body[:_NUMBER_BYTES], 'big')}"


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
        self._events: list[AnyEvent] = []
        self._at_us = 0
        self._numbers = 0
        self._faults = 0
        self._round = 0
        self._transient: set[str] = set()
        # Queues whose node has crashed, each with the moment of the last crash.
        self._crashed_us: dict[str, int] = {}
        # Transient queues of which no copy is left, each with the moment at which it began anew.
        self._emptied_us: dict[str, int] = {}
        # When each message was published, and where to.
        self._published_us: dict[str, int] = {}
        self._queues: dict[str, tuple[str, ...]] = {}
        self._moves = Moves()

    @property
    def at_us(self) -> int:
        """A moment behind all events so far, and before all to come."""
        return self._now_us()

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
        self._queues[message] = queues
        if not is_persistent:
            self._transient.add(message)
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

    def started(self, session: str, queue: str, node: str, prefetch: int) -> None:
        """A consumer is about to subscribe, or to get a message."""
        self._add(SessionStart(self._now_us(), session, queue, node, prefetch))

    def ended(self, session: str, reason: str = LOST) -> None:
        """A session is over."""
        self._add(SessionEnd(self._now_us(), session, reason))

    def delivered(self, session: str, tag: int, redelivered: bool, body: bytes) -> None:
        """A consumer has got a message."""
        at_us, crc = self._now_us(), zlib.crc32(body)
        self._add(Delivery(at_us, session, tag, message_name(body), redelivered, crc))

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

    # -- faults --------------------------------------------------------------------------------

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

    # -- mirrored queues ---------------------------------------------------------------------------

    def leads(self, queue: str, epoch: int, node: str) -> None:
        """A node has become the master of a queue; consumers may have to move to it."""
        self.fault("move", node)
        self._add(MasterReport(self._now_us(), queue, epoch, node))

    def confirmed_in(self, queue: str, epoch: int, node: str) -> None:
        """A master confirms something."""
        self._add(EpochConfirm(self._now_us(), queue, epoch, node))

    def moved(
        self, queue: str, heard: tuple[tuple[SentMessages, int], ...], forgotten_us: int
    ) -> None:
        """A queue has another master than before; see `Move`."""
        self._moves.add(queue, Move(self._now_us(), heard, forgotten_us))

    def forgotten(self, queue: str, is_transient: bool) -> None:
        """A queue goes on with what a disk has kept, which is nothing of a transient queue."""
        at_us = self._now_us()
        self._crashed_us[queue] = at_us
        if is_transient:
            self._emptied_us[queue] = at_us
        name = self._fault("restored", queue, (queue,))
        self.fault_over(name)

    def copies_are_next(self) -> None:
        """The copies that are reported from now on are compared with each other."""
        self._round += 1

    def copied(self, queue: str, node: str, messages: tuple[CopyMessage, ...]) -> None:
        """A copy in sync has these messages, while nothing changes."""
        self._add(CopyReport(self._now_us(), self._round, queue, node, True, messages))

    # -- the end -----------------------------------------------------------------------------------

    def fault_over(self, name: str) -> None:
        """A fault is over."""
        self._add(FaultEnd(self._now_us(), name))

    def publishing_over(self) -> None:
        """No publisher publishes any more, and nothing is on its way."""
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
            if broken.rule == Rule.FLAG and len(broken.moments_us) == 2:
                # A message that came twice without its flag.
                one_us, other_us = broken.moments_us
                if self._moves.may_lack_flag(broken.queue, one_us, other_us):
                    self.counts["flags that a new master did not know"] += 1
                    continue
            if broken.rule not in (Rule.AGAIN, Rule.COPIES):
                raise Violation(broken.rule.name.lower(), broken.line(0))
        facts = Facts(events)
        self._judge_repeats(facts)
        self._judge_copies(facts)

    def _judge_copies(self, facts: Facts) -> None:
        """Rule 9: the first copy of each queue and round is its master's."""
        masters: dict[tuple[str, int], CopyReport] = {}
        for copy in facts.copies:
            master = masters.setdefault((copy.queue, copy.round), copy)
            fault = self._moves.fault_of_copy(facts, master, copy)
            if fault:
                raise Violation("copies", f"{copy.queue}: {fault}")
            if master.messages != copy.messages:
                self.counts["copies that know more than their master"] += 1

    def _judge_repeats(self, facts: Facts) -> None:
        """Rule 6 without a window of time.

        Faults of the network excuse nothing. The crash of the only copy excuses what its disk may
        not have had, and a change of the master what the new one has not heard of.
        """
        for message in facts.messages.values():
            for queue, deliveries in message.deliveries.items():
                settled = min(deliveries, key=lambda each: each.settled_us)
                until_us = settled.settled_us + WINDOW_MS * 1000
                if facts.lone_crash_between(queue, settled.at_us, until_us):
                    continue
                for delivery in deliveries:
                    if delivery is settled or delivery.at_us <= settled.settled_us:
                        continue
                    if self._moves.may_repeat(queue, settled.settled_us, delivery.at_us):
                        self.counts["acks undone by a new master"] += 1
                        continue
                    name = message.publish.message
                    raise Violation("again", f"{name} was acked, and came again from {queue}")

    def _is_void(self, event: AnyEvent) -> bool:
        """Whether an event is the confirm of a message that a crash may have taken.

        It was transient, or in a transient queue.
        """
        if not isinstance(event, Confirm):
            return False
        published_us = self._published_us[event.message]
        gone_us = self._crashed_us if event.message in self._transient else self._emptied_us
        return any(gone_us.get(queue, 0) >= published_us for queue in self._queues[event.message])
