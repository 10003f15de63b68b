"""Records what clients of a simulated cluster do, as a history that the checker judges.

A queue is named NAME#BIRTH: a queue that is deleted and declared again is another one. Moments are
the simulation's own: ms of its clock, with a count of the events in each.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Final

from simulator.checker.events import (
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
from simulator.checker.facts import NEVER, DeliveryFacts, Facts
from simulator.checker.fences import judge_single_consumers
from simulator.checker.gaps import judge_gaps, longest_gaps
from simulator.checker.verdict import judge
from simulator.checker.violation import Rule
from simulator.checker.violation import Violation as BrokenRule
from simulator.cluster.recording.letters import (
    deaths_of,
    is_letter,
    message_name,
    origin_of,
)
from simulator.cluster.recording.moves import Move, Moves, SentMessages
from simulator.cluster.recording.needed_copies import NeededCopies
from simulator.cluster.recording.promises import Promises, SentMessage, check_falling
from simulator.cluster.recording.reigns import Reigns
from simulator.cluster.recording.uses import QueueUses
from simulator.leaving.histories import QueueRules
from simulator.models.messages import Violation, body_of
from warrenmq.wire.properties import decode_properties

# How long around the start of a fault acks may be undone, and flags be set: longer than the silence
# after which a link is down, and than a commit takes.
WINDOW_MS: Final = 6000
# How long a single active consumer may be fed beside the next one (ms): a master that was replaced
# hands out until it knows, and a client at a node that stands still reads what it was sent later.
SINGLE_MS: Final = 4000
# Rules that the recording judges by more than the history says.
_JUDGED_HERE: Final = (Rule.AGAIN, Rule.COPIES, Rule.GAP)
# The kind of fault that a change of a queue's master is.
MOVE: Final = "move"


def life_name(name: bytes, birth: int) -> str:
    """The name of one life of a queue in a history."""
    return f"{name.decode()}#{birth}"


class Recording:
    """The history so far; `now_ms` is set by the simulation. `rules`: those of the queues."""

    def __init__(self, reigns: Reigns, rules: tuple[QueueRules, ...] = ()) -> None:
        self.now_ms = 0
        self.reigns = reigns
        self.promises = Promises(rules)
        self.needed_copies = NeededCopies(reigns)
        self._uses = QueueUses()
        reigns.on_deleted = self._on_deleted
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
        # Queues whose node has crashed, each with the moment of the last crash.
        self._crashed_us: dict[str, int] = {}
        # Transient queues of which no copy is left, each with the moment at which it began anew.
        self._emptied_us: dict[str, int] = {}
        # When each queue got its first reader group.
        self._grouped_us: dict[str, int] = {}
        # Messages that were handed over from delays.
        self._handed_over: set[str] = set()
        # Messages of sinks.
        self._staged: set[str] = set()
        # Dead letters that clients have got.
        self._letters: set[str] = set()
        # The queue of each session, and the messages of each by tag.
        self._queue_of: dict[str, str] = {}
        self._messages: dict[tuple[str, int], str] = {}
        # Faults have happened, or masters have changed.
        self._is_disturbed = False
        # When disks began to fail or to hang, and when they were well again: moments of the
        # history; the last one may be open.
        self._disk_faults: list[tuple[int, int]] = []
        # When the nodes crashed whose disks each queue went on with.
        self._restored_us: dict[str, list[int]] = {}
        self._moves = Moves()
        # The epoch in which a master has answered, by the moment of the answer.
        self._reply_epochs: dict[int, int] = {}

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
        expiration_ms: int = 0,
        priority: int = 0,
    ) -> None:
        """A message is about to be sent to `queues`."""
        at_us = self._now_us()
        sent = SentMessage(at_us, self.now_ms, queues, is_persistent, expiration_ms)
        self.promises.published(message, sent)
        if message not in self._handed_over:
            self.needed_copies.published(message, queues, at_us)
        self._publish(at_us, message, session, sequence, queues, body, priority)

    def handed_over(
        self, message: str, body: bytes, queues: tuple[str, ...], priority: int = 0
    ) -> None:
        """A message is sent that waits elsewhere before it comes to `queues`.

        So it has no order, and a death on its way may double it.
        """
        self._handed_over.add(message)
        self.published(message, body, f"way of {message}", 1, queues, True, priority=priority)

    def staged(
        self, message: str, body: bytes, sink: str, place: int, queues: tuple[str, ...]
    ) -> None:
        """A sink is about to commit a message, which comes to `queues` later, exactly once.

        `place` grows from message to message of the sink.
        """
        at_us = self._now_us()
        self._staged.add(message)
        self.promises.published(message, SentMessage(at_us, self.now_ms, queues, True, 0))
        self._publish(at_us, message, sink, place, queues, body, 0)

    def may_be_double(self, message: str) -> bool:
        """Whether a death may have doubled a message: it was handed over, alive or dead."""
        return is_letter(message) or message in self._handed_over

    def grouped(self, queue: str) -> None:
        """Note that a reader group has opened a queue; only the first time counts."""
        self._grouped_us.setdefault(queue, self._now_us())

    def may_leave_batches(self, message: str, queue: str) -> bool:
        """Whether a crash may have taken a message of a queue from a batch that was read.

        It was transient and came before the queue's first reader group, so that a copy may have
        moved it to its disk by then, which is not written again.
        """
        sent = self.promises.sent.get(message)
        return (
            sent is not None
            and not sent.is_persistent
            and sent.at_us < self._grouped_us.get(queue, 0)
            and self._crashed_us.get(queue, 0) >= sent.at_us
        )

    def _publish(
        self,
        at_us: int,
        message: str,
        session: str,
        sequence: int,
        queues: tuple[str, ...],
        body: bytes,
        priority: int,
    ) -> None:
        levels = tuple(self.promises.level_in(queue, priority) for queue in queues)
        crc = zlib.crc32(body)
        self._add(Publish(at_us, message, session, session, sequence, queues, crc, levels))

    def confirmed(self, message: str) -> None:
        """The broker has confirmed a message, or committed its transaction."""
        self.promises.confirmed(message, self.now_ms)
        self.needed_copies.confirmed(message, self._at_us)
        self._add(Confirm(self._now_us(), message))

    def nacked(self, message: str) -> None:
        """The broker has refused a message."""
        self._add(Nack(self._now_us(), message))

    def returned(self, message: str, code: int) -> None:
        """The broker has returned a message as unroutable."""
        self._add(Return(self._now_us(), message, code))

    # -- consumers ---------------------------------------------------------------------------------

    def started(
        self, session: str, queue: str, node: str, prefetch: int, is_single: bool = False
    ) -> None:
        """A consumer is about to subscribe, or to get a message; `is_single` as SessionStart."""
        self._queue_of[session] = queue
        self._add(SessionStart(self._now_us(), session, queue, node, prefetch, is_single))

    def ended(self, session: str, reason: str = LOST) -> None:
        """A session is over."""
        self._add(SessionEnd(self._now_us(), session, reason))

    def delivered(
        self,
        session: str,
        tag: int,
        redelivered: bool,
        properties: bytes,
        body: bytes,
        is_local: bool,
    ) -> None:
        """A consumer has got a message; `is_local`: its node has the queue."""
        at_us, crc = self._now_us(), zlib.crc32(body)
        message, deaths = message_name(properties, body), deaths_of(properties)
        queue = self._queue_of[session]
        if deaths and message not in self._letters:
            # Nobody knows when the broker has published it.
            self._letters.add(message)
            priority = decode_properties(properties).priority or 0
            self._publish(at_us, message, f"letter {message}", 1, (queue,), body, priority)
        self._messages[session, tag] = message
        self._add(Delivery(at_us, session, tag, message, redelivered, crc))
        self.promises.check_delivery(message, deaths, queue, self.now_ms, is_local)

    def acked(self, session: str, tag: int) -> None:
        """A consumer is about to ack a message."""
        self._add(Ack(self._now_us(), session, tag))

    def rejected(self, session: str, tag: int) -> None:
        """A consumer is about to drop a message, which may become a dead letter."""
        message = self._messages[session, tag]
        self.promises.rejected(session, tag, message, self._queue_of[session])
        self.acked(session, tag)

    def requeued(self, session: str, tag: int) -> None:
        """A consumer is about to return a message."""
        self._add(Requeue(self._now_us(), session, tag))

    def called(self, session: str) -> None:
        """A consumer asks the node of its queue something, behind all its acks."""
        self._add(SyncCall(self._now_us(), session))

    def answered(self, session: str, epoch: int = 0) -> None:
        """The node of the queue has answered, as its master in `epoch` if the queue has copies."""
        at_us = self._now_us()
        self._reply_epochs[at_us] = epoch
        self._add(SyncReply(at_us, session))

    def used(self, queue: str, sent_ms: int) -> None:
        """A call that was sent at `sent_ms` and counts as use of a queue was answered."""
        self._uses.used(queue, sent_ms)

    def _on_deleted(self, queue: str) -> None:
        rules = self.promises.of(queue)
        if rules.expires_ms and queue not in self.leaky:
            self.counts["queues that have expired"] += 1
            self._uses.gone(queue, rules.expires_ms, self.now_ms)

    # -- faults --------------------------------------------------------------------------------

    def fault(self, kind: str, node: str) -> str:
        """A fault of the network begins; returns its name."""
        return self._fault(kind, node, None)

    def crashed(self, node: str, queues: tuple[str, ...]) -> str:
        """A node crashes, which has `queues`; returns the name of the fault."""
        for queue in queues:
            self._forget_transient(queue, self._at_us)
        return self._fault("crash", node, queues)

    def outage(self, kind: str, node: str, limit_ms: int) -> str:
        """A fault begins that may keep confirms waiting for `limit_ms`; returns its name."""
        return self._fault(kind, node, None, limit_ms)

    def _forget_transient(self, queue: str, at_us: int) -> None:
        self._crashed_us[queue] = at_us
        self.promises.crashed(queue, at_us)

    def disk_faults(self, is_any: bool) -> None:
        """Note whether, from now on, any disk fails or hangs."""
        begins_us, ends_us = self._disk_faults[-1] if self._disk_faults else (0, 0)
        if is_any and ends_us != NEVER:
            self._disk_faults.append((self._now_us(), NEVER))
        elif not is_any and ends_us == NEVER:
            self._disk_faults[-1] = (begins_us, self._now_us())

    def _fault(
        self,
        kind: str,
        node: str,
        queues: tuple[str, ...] | None,
        limit_ms: int | None = None,
    ) -> str:
        self._faults += 1
        self._is_disturbed |= kind != MOVE
        name = f"fault {self._faults}"
        is_crash = queues is not None and len(queues) > 0
        self._add(
            FaultStart(
                self._now_us(), name, kind, node, limit_ms, is_crash, queues if queues else ()
            )
        )
        return name

    # -- mirrored queues ---------------------------------------------------------------------------

    def leads(self, queue: str, epoch: int, node: str) -> None:
        """A node has become the master of a queue; consumers may have to move to it."""
        self.fault(MOVE, node)
        self.needed_copies.led(queue)
        self._is_disturbed |= epoch > 1
        self._add(MasterReport(self._now_us(), queue, epoch, node))

    def confirmed_in(self, queue: str, epoch: int, node: str) -> None:
        """A master confirms something."""
        self._add(EpochConfirm(self._now_us(), queue, epoch, node))

    def moved(
        self,
        queue: str,
        heard: tuple[tuple[SentMessages, int], ...],
        forgotten_us: int,
        is_unsafe: bool,
    ) -> None:
        """A queue has another master than before; see `Move`."""
        self._moves.add(queue, Move(self._now_us(), heard, forgotten_us, is_unsafe))

    def forgotten(self, queue: str, is_transient: bool, crashed_us: int) -> None:
        """A queue goes on with what a disk has kept, which is nothing of a transient queue.

        `crashed_us`: when the node with this disk has crashed.
        """
        at_us = self._now_us()
        self._restored_us.setdefault(queue, []).append(crashed_us)
        self._forget_transient(queue, at_us)
        if is_transient:
            self._emptied_us[queue] = at_us
        name = self._fault("restored", queue, (queue,))
        self.fault_over(name)

    def promoted_unsafely(self, queue: str, epoch: int) -> None:
        """A copy that was not in sync leads a queue from `epoch` on, as a policy allows."""
        self.counts["unsafe promotions"] += 1
        self.promises.promoted_unsafely(queue, epoch, self._now_us())

    def copies_are_next(self) -> None:
        """The copies that are reported from now on are compared with each other."""
        self._round += 1

    def copied(self, queue: str, node: str, messages: tuple[CopyMessage, ...]) -> None:
        """A copy in sync has these messages, while nothing changes."""
        self._check_once([each.message for each in messages], queue, f" on {node}")
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
        self.promises.drained(queue, self.now_ms)
        if queue not in self.leaky:
            self._add(QueueDrained(self._now_us(), queue))

    def _check_once(self, names: list[str], queue: str, place: str = "") -> None:
        """Violation if a queue that had `names` at one time had a message of a sink twice.

        A copy that leads the queue, and was being synchronised, may have messages without receipts.
        """
        for name, count in Counter(names).items():
            if count > 1 and name in self._staged:
                if self.promises.may_double(name, queue):
                    self.counts["messages of sinks that a synchronisation has doubled"] += 1
                    continue
                raise Violation("doubled", f"{queue}{place} has {name} of a sink {count} times")

    def check_drained(self, queue: str, session: str) -> None:
        """Check what a session got that has drained a queue, and has returned nothing.

        Violation if a message of a sink came twice, or a higher level not first.
        """
        names = [name for (of, _tag), name in self._messages.items() if of == session]
        self._check_once(names, queue)
        levels = {
            event.message: event.level_in(queue)
            for event in self._events
            if isinstance(event, Publish) and queue in event.queues
        }
        check_falling([levels[name] for name in names if name in levels], queue)

    @property
    def event_count(self) -> int:
        """Events so far."""
        return len(self._events)

    def judge_gap(self, first: int) -> None:
        """Violation if an outage since the event `first` kept confirms waiting for too long.

        Nothing else was published meanwhile (rule 10).
        """
        events = [
            event
            for event in self._events[first:]
            if isinstance(event, Publish | Confirm)
            or (isinstance(event, FaultStart) and event.gap_limit_ms is not None)
        ]
        facts = Facts([*events, PublishingEnd(self._now_us())])
        for broken in judge_gaps(longest_gaps(facts)):
            raise Violation("gap", broken.line(0))
        self.counts["outages"] += 1

    # -- verdict -----------------------------------------------------------------------------------

    def judge(self) -> None:
        """Raise Violation if a promise was broken."""
        events = [event for event in self._events if not self._is_void(event)]
        verdict = judge(events, WINDOW_MS)
        self.counts.update(verdict.counts)
        facts = Facts(events)
        for broken in judge_single_consumers(facts, SINGLE_MS * 1000):
            raise Violation("single", broken.line(0))
        for broken in verdict.violations:
            if broken.rule not in _JUDGED_HERE and not self._is_excused(facts, broken):
                raise Violation(broken.rule.name.lower(), broken.line(0))
        self._judge_letters(facts)
        self._judge_repeats(facts)
        self._judge_copies(facts)

    def _is_excused(self, facts: Facts, broken: BrokenRule) -> bool:
        if broken.rule in (Rule.LOST, Rule.SETTLED):
            self.counts["messages that left by rule"] += 1
            return not self.promises.loss(facts, broken.messages[0], broken.queue)
        if broken.rule in (Rule.FLAG, Rule.ORDER) and any(map(self.may_be_double, broken.messages)):
            self.counts["messages that a fault has doubled"] += 1
            return self._is_disturbed or any(
                self._has_moved_since(facts, name) for name in broken.messages
            )
        return False

    def _has_moved_since(self, facts: Facts, message: str) -> bool:
        """Whether some queue got a master after this message was published.

        A queue that a policy mirrors, or whose master moves, sends the dead letters again that were
        on their way.
        """
        sent_us = self.promises.sent[origin_of(message)].at_us
        return any(report.at_us > sent_us for report in facts.masters)

    def _judge_letters(self, facts: Facts) -> None:
        """A message that died is where dead letters go (rule 1)."""
        for message in facts.messages.values():
            for queue in message.publish.queues if message.is_promised else ():
                if self.promises.target_of(queue):
                    loss = self.promises.loss(facts, message.publish.message, queue)
                    if loss:
                        raise Violation("lost letter", loss)

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
                until_us = self._on_disk_us(settled.settled_us)
                if facts.lone_crash_between(queue, settled.at_us, until_us) or any(
                    settled.at_us <= crashed_us < until_us
                    for crashed_us in self._restored_us.get(queue, ())
                ):
                    continue
                for delivery in deliveries:
                    if delivery is settled or delivery.at_us <= settled.settled_us:
                        continue
                    is_firm = self._is_firm(queue, settled)
                    if self._moves.may_repeat(queue, settled.settled_us, delivery.at_us, is_firm):
                        self.counts["acks undone by a new master"] += 1
                        continue
                    name = message.publish.message
                    if self._is_disturbed and (
                        self.may_be_double(name) or self.promises.is_dead_letter(settled)
                    ):
                        # A dead letter leaves its queue when the target has it.
                        self.counts["messages that a fault has doubled"] += 1
                        continue
                    if _stood_still(facts, delivery.session.start.node, settled.settled_us):
                        # The client had the message before, and no node could take it back.
                        self.counts["deliveries of nodes that stood still"] += 1
                        continue
                    raise Violation("again", f"{name} was acked, and came again from {queue}")

    def _is_firm(self, queue: str, settled: DeliveryFacts) -> bool:
        """Whether no safe change of the master may undo an ack."""
        epoch = self._reply_epochs.get(settled.settled_us, 0)
        return self.reigns.is_firm(queue, epoch, settled.settled_us)

    def _on_disk_us(self, at_us: int) -> int:
        """By when a disk has what happened at a moment."""
        window_us = WINDOW_MS * 1000
        for begins_us, ends_us in self._disk_faults:
            if begins_us - window_us <= at_us <= ends_us:
                at_us = ends_us
        return at_us + window_us

    def _is_void(self, event: AnyEvent) -> bool:
        """Whether an event is the confirm of a message that a crash may have taken.

        It was transient, or in a transient queue.
        """
        if not isinstance(event, Confirm):
            return False
        sent = self.promises.sent[event.message]
        gone_us = self._emptied_us if sent.is_persistent else self._crashed_us
        return any(gone_us.get(queue, 0) >= sent.at_us for queue in sent.queues)


def _stood_still(facts: Facts, node: str, at_us: int) -> bool:
    """Whether a node was frozen at this moment."""
    return any(
        fault.kind == "freeze"
        and fault.node == f"{node}-{node}"
        and fault.at_us <= at_us < facts.fault_ends.get(fault.fault, NEVER)
        for fault in facts.faults
    )
