"""The facts that the rules judge: a history, by message, session and fault.

Facts are gathered in one pass. A history that contradicts itself, as an ack of a tag that was never
delivered, is the recorder's fault and raises HistoryError.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from simulator.checker.events import (
    CANCELLED,
    LOST,
    Ack,
    AnyEvent,
    Confirm,
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
    Reject,
    Removal,
    Requeue,
    Return,
    SessionEnd,
    SessionStart,
    SyncCall,
    SyncReply,
)
from simulator.checker.history import HistoryError

# A moment that never comes.
NEVER = 1 << 62
# A new master is reported so long after it has taken over, at most.
REPORTED_US = 1_000_000
# A removal without an answer happens within this time after its client gave up, or never.
_LATE_REMOVAL_US = 15_000_000


@dataclass
class SessionFacts:
    """One consumer, from its subscription to its end."""

    start: SessionStart
    end_us: int = NEVER
    # CLOSED, LOST or CANCELLED; "" while the session is open.
    end_reason: str = ""
    # Deliveries in the order of arrival, and by tag.
    deliveries: list[DeliveryFacts] = field(default_factory=list)
    by_tag: dict[int, DeliveryFacts] = field(default_factory=dict)
    # Acked deliveries that no synchronous call covers, and those that the open call covers.
    _acked: list[DeliveryFacts] = field(default_factory=list)
    _called: list[DeliveryFacts] = field(default_factory=list)

    @property
    def is_lost(self) -> bool:
        """Whether the broker may have known of the end before the client."""
        return self.end_reason in (LOST, CANCELLED)

    def ack(self, tag: int, at_us: int) -> None:
        """Note the ack of a delivery."""
        delivery = self.by_tag[tag]
        delivery.acked_us = at_us
        self._acked.append(delivery)

    def call(self) -> None:
        """Note that a synchronous call is sent behind the acks so far."""
        self._called += self._acked
        self._acked = []

    def reply(self, at_us: int) -> None:
        """Note that the call succeeded: the acks before it have taken effect."""
        for delivery in self._called:
            delivery.settled_us = at_us
        self._called = []


@dataclass
class DeliveryFacts:
    """One delivery, and what its consumer did with it."""

    event: Delivery
    session: SessionFacts
    acked_us: int = NEVER
    # When a synchronous call behind the ack succeeded.
    settled_us: int = NEVER
    requeued_us: int = NEVER
    # The queue of dead letters for which the consumer rejected the message; "" if it did not.
    letters: str = ""

    @property
    def at_us(self) -> int:
        """When the message arrived."""
        return self.event.at_us

    @property
    def is_acked(self) -> bool:
        """Whether the consumer sent an ack, or a reject that makes a dead letter."""
        return self.acked_us != NEVER


@dataclass
class MessageFacts:
    """One message, from its publish to its deliveries in each queue."""

    publish: Publish
    confirms: list[Confirm] = field(default_factory=list)
    nacks: list[Nack] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    # Deliveries by queue, in the order of arrival.
    deliveries: dict[str, list[DeliveryFacts]] = field(default_factory=dict)

    @property
    def is_promised(self) -> bool:
        """Whether the broker took responsibility for the message in all its queues."""
        return bool(self.confirms) and not self.nacks and not self.returns

    @property
    def own_deliveries(self) -> list[tuple[str, list[DeliveryFacts]]]:
        """Deliveries by queue, but for those of dead letters."""
        return [each for each in self.deliveries.items() if each[0] in self.publish.queues]

    @property
    def rejected(self) -> list[DeliveryFacts]:
        """Deliveries that were rejected for a queue of dead letters."""
        return [
            delivery
            for deliveries in self.deliveries.values()
            for delivery in deliveries
            if delivery.letters
        ]


class Facts:
    """The facts of one history. Raises HistoryError for events that contradict each other."""

    def __init__(self, events: list[AnyEvent]) -> None:
        self.start_us = events[0].at_us if events else 0
        self.end_us = events[-1].at_us if events else 0
        self.messages: dict[str, MessageFacts] = {}
        self.sessions: dict[str, SessionFacts] = {}
        # Sessions by queue, in the order of their starts.
        self.sessions_of: dict[str, list[SessionFacts]] = {}
        # Deliveries of messages that were never published.
        self.ghosts: list[DeliveryFacts] = []
        # Answers to messages that were never published.
        self.ghost_answers: list[Confirm | Nack | Return] = []
        self.faults: list[FaultStart] = []
        # Moments at which faults ended, by name.
        self.fault_ends: dict[str, int] = {}
        # Moments at which queues were found empty.
        self.drained: dict[str, int] = {}
        # Purges and deletions by queue.
        self.removals: dict[str, list[Removal]] = {}
        self.masters: list[MasterReport] = []
        self.epoch_confirms: list[EpochConfirm] = []
        self.copies: list[CopyReport] = []
        self.publishing_end_us = NEVER
        for event in events:
            try:
                self._add(event)
            except KeyError as error:
                raise HistoryError(f"{error} is unknown at {event}") from None
        self.publishing_end_us = min(self.publishing_end_us, self.end_us)

    @property
    def queues(self) -> list[str]:
        """Names of all queues that were published to or consumed from, sorted."""
        names = {name for message in self.messages.values() for name in message.publish.queues}
        return sorted(names | self.sessions_of.keys())

    def lone_crash_between(self, queue: str, after_us: int, before_us: int) -> bool:
        """Whether the only node with a copy of a queue may have crashed in this time.

        The crash itself lies anywhere between the start and the end of the fault.
        """
        return any(
            is_lone_crash_of(fault, queue)
            and fault.at_us < before_us
            and self.fault_ends.get(fault.fault, NEVER) >= after_us
            for fault in self.faults
        )

    def new_master_between(self, queue: str, after_us: int, before_us: int) -> bool:
        """Whether a queue got another master than its first one in this time, not by a transfer."""
        return any(
            report.queue == queue
            and report.epoch > 1
            and after_us <= report.at_us <= before_us
            and not self._is_transfer(report.at_us)
            for report in self.masters
        )

    def is_letter_taken_back(self, rejected: DeliveryFacts, again_us: int) -> bool:
        """Whether another master may have taken back a message that was to be a dead letter.

        It stays in its queue until the queue of dead letters has it, which may be out of reach.
        """
        queue = rejected.session.start.queue
        return bool(rejected.letters) and self.new_master_between(
            queue, rejected.at_us, again_us + REPORTED_US
        )

    def is_transferred(self, queue: str, after_us: int, before_us: int) -> bool:
        """Whether the master of a queue moved in good order in this time."""
        return any(
            after_us <= moment <= before_us and self._is_transfer(moment)
            for moment in self.moves_of(queue)
        )

    def _is_transfer(self, at_us: int) -> bool:
        """Whether the last fault before this moment lets masters hand over in good order."""
        before = [fault for fault in self.faults if fault.at_us <= at_us]
        return bool(before) and before[-1].hands_over

    @functools.cached_property
    def moves(self) -> dict[str, list[int]]:
        """The moments at which masters moved to another node, by queue.

        A queue NAME that was deleted and declared again is NAME~2, and so on.
        """
        masters: dict[str, str] = {}
        moves: dict[str, list[int]] = {}
        for report in self.masters:
            if masters.setdefault(report.queue, report.node) != report.node:
                masters[report.queue] = report.node
                moves.setdefault(report.queue, []).append(report.at_us)
        return moves

    def moves_of(self, queue: str) -> list[int]:
        """The moments at which the master of a queue, deleted or not, moved to another node."""
        return [
            moment
            for name, moments in self.moves.items()
            for moment in moments
            if name.partition("~")[0] == queue
        ]

    def removes(self, message: MessageFacts, queue: str) -> bool:
        """Whether a purge or a deletion may have taken a message out of a queue.

        One without an answer may happen later.
        """
        return any(
            each.at_us + (0 if each.is_answered else _LATE_REMOVAL_US) >= message.publish.at_us
            for each in self.removals.get(queue, ())
        )

    def _add(self, event: AnyEvent) -> None:
        match event:
            case Publish():
                if event.message in self.messages:
                    raise HistoryError(f"message {event.message} was published twice")
                self.messages[event.message] = MessageFacts(event)
            case Confirm() | Nack() | Return():
                self._add_answer(event)
            case SessionStart():
                if event.session in self.sessions:
                    raise HistoryError(f"session {event.session} started twice")
                session = self.sessions[event.session] = SessionFacts(event)
                self.sessions_of.setdefault(event.queue, []).append(session)
            case (
                Delivery() | Ack() | Requeue() | Reject() | SyncCall() | SyncReply() | SessionEnd()
            ):
                self._add_to_session(event, self.sessions[event.session])
            case FaultStart():
                self.faults.append(event)
            case FaultEnd():
                self.fault_ends[event.fault] = event.at_us
            case QueueDrained():
                self.drained[event.queue] = event.at_us
            case Removal():
                self.removals.setdefault(event.queue, []).append(event)
            case PublishingEnd():
                self.publishing_end_us = event.at_us
            case MasterReport():
                self.masters.append(event)
            case EpochConfirm():
                self.epoch_confirms.append(event)
            case CopyReport():
                self.copies.append(event)

    def _add_answer(self, event: Confirm | Nack | Return) -> None:
        message = self.messages.get(event.message)
        if message is None:
            self.ghost_answers.append(event)
        elif isinstance(event, Confirm):
            message.confirms.append(event)
        elif isinstance(event, Nack):
            message.nacks.append(event)
        else:
            message.returns.append(event)

    def _add_to_session(
        self,
        event: Delivery | Ack | Requeue | Reject | SyncCall | SyncReply | SessionEnd,
        session: SessionFacts,
    ) -> None:
        match event:
            case Delivery():
                self._add_delivery(DeliveryFacts(event, session))
            case Ack():
                session.ack(event.tag, event.at_us)
            case Requeue():
                session.by_tag[event.tag].requeued_us = event.at_us
            case Reject():
                session.by_tag[event.tag].letters = event.letters
                session.ack(event.tag, event.at_us)
            case SyncCall():
                session.call()
            case SyncReply():
                session.reply(event.at_us)
            case SessionEnd():
                session.end_us = event.at_us
                session.end_reason = event.reason

    def _add_delivery(self, delivery: DeliveryFacts) -> None:
        session = delivery.session
        session.deliveries.append(delivery)
        session.by_tag[delivery.event.tag] = delivery
        message = self.messages.get(delivery.event.message)
        if message is None:
            self.ghosts.append(delivery)
        else:
            message.deliveries.setdefault(session.start.queue, []).append(delivery)


def is_lone_crash_of(fault: FaultStart, queue: str) -> bool:
    """Whether the fault is the crash of the only node that has a copy of the queue."""
    return fault.is_lone_crash and (not fault.queues or queue in fault.queues)
