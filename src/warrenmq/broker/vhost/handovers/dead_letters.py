"""Dead letters: messages that were rejected, expired or had no room go to another exchange.

A queue gives its dead letters to the vhost, which publishes them at the end of the turn, in the
order in which they died. So one that enters a queue at its limit, or with messages that expire, is
never in the midst of another publish. Each is handed over (`handovers.py`): the original leaves its
queue when the copy is durable.

As in RabbitMQ, nobody is told about a dead letter that no queue gets: it is dropped.
"""

from __future__ import annotations

import logging
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.content.properties import PublishProperties, inspect_properties
from warrenmq.broker.dead_letters.death_headers import DeathHeaders, cycling_queues
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.broker.vhost.handovers.handovers import Handovers
from warrenmq.broker.vhost.queue_host import HandoverHost
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.remote.copies import CopyOptions, CopyWaiter, distant_of, local_of
from warrenmq.queues.backing.loading import EntryContents
from warrenmq.queues.entry import ALPHA, Entry, QueueEnd
from warrenmq.queues.leave_reason import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import NO_LIMIT, DeadLetterRule
from warrenmq.queues.turn import TurnShare
from warrenmq.routing.exchange import Exchange
from warrenmq.store.model.message import NOT_JOURNALED, Message, MovedMessage

logger = logging.getLogger("warren.dead_letters")

# Dead letters that one turn publishes.
SLICE_LETTERS: Final = 1024
# Steps (`VhostQueues.route_steps`) at which a turn publishes no more of them. A step of a dead
# letter takes longer than one of a client's publish: its queues are asked first whether they are
# full.
SLICE_STEPS: Final = 4096
# Dead letters whose contents are read from disk together.
_LOAD_LETTERS: Final = 256
# Reasons as x-death has them.
REASON_TEXTS: Final[dict[int, bytes]] = {
    int(REJECTED): b"rejected",
    int(EXPIRED): b"expired",
    int(MAXLEN): b"maxlen",
    int(DELIVERY_LIMIT): b"delivery_limit",
}


class _DeadLetter:
    """A message that left `queue` for `reason`; `entry` is None for one that the queue refused."""

    def __init__(
        self,
        queue: QueueEnd,
        entry: Entry | None,
        refused: Message | None,
        reason: i64,
        rule: DeadLetterRule,
    ) -> None:
        self.queue: QueueEnd = queue
        self.entry: Entry | None = entry
        self.refused: Message | None = refused
        self.reason: i64 = reason
        self.rule: DeadLetterRule = rule
        # The queues that have refused the message in this turn, one after another.
        self.refusers: list[QueueEnd] = [queue]


class _Routed:
    """The queues and delayed exchanges that a dead letter goes to, its address and properties."""

    def __init__(
        self,
        queues: list[MessageTaker],
        waits: list[Exchange],
        address: bytes,
        raw: bytes,
        properties: PublishProperties,
    ) -> None:
        self.queues: list[MessageTaker] = queues
        self.waits: list[Exchange] = waits
        self.address: bytes = address
        self.raw: bytes = raw
        self.properties: PublishProperties = properties


def _moved(
    routed: _Routed, message: Message, origin_id: i64, origin_seq: i64, now_ms: i64
) -> MovedMessage:
    """The dead letter made of `message`, which has been the message `origin_seq` of a queue."""
    return MovedMessage(
        routed.address,
        routed.raw,
        message.body,
        message.persistent,
        now_ms,
        origin_id,
        origin_seq,
    )


def _letters_of(refusing: list[MessageTaker], message: Message) -> list[_DeadLetter]:
    """The dead letters of queues that refuse `message`."""
    letters: list[_DeadLetter] = []
    for queue in refusing:
        rule = queue.refused_rule()
        if rule is not None:
            letters.append(_DeadLetter(queue, None, message, MAXLEN, rule))
    return letters


class DeadLetters(HandoverHost):
    """The dead letters of one vhost."""

    def __init__(self, vhost: VhostQueues, delayed: DelayedMessages) -> None:
        self.handovers: Handovers = delayed.handovers
        self.delayed: DelayedMessages = delayed
        self._vhost: VhostQueues = vhost
        # Dead letters to publish, oldest first, from `_next` on.
        self._pending: list[_DeadLetter] = []
        self._next: i64 = 0
        self._is_loading: bool = False
        self._headers: DeathHeaders = DeathHeaders()
        # The properties of the last dead letter.
        self._properties: PublishProperties = PublishProperties(b"\x00\x00")
        # Cycles that were logged, as pairs of queues.
        self._logged: set[tuple[bytes, bytes]] = set()
        self.slice_steps: i64 = SLICE_STEPS
        # Dead letters since the start, by reason.
        self.counts: dict[int, int] = {}

    def begin_level(self, owner_id: i64, priority: i64) -> i64:
        return self._vhost.begin_level(owner_id, priority)

    def admits(self, share: TurnShare) -> bool:
        return self.handovers.admits(share)

    def take(self, entry: Entry, reason: i64, rule: DeadLetterRule) -> None:
        self.handovers.take(entry)
        self._add(_DeadLetter(entry.queue, entry, None, reason, rule))

    def take_refused(self, queue: QueueEnd, message: Message, rule: DeadLetterRule) -> None:
        self._add(_DeadLetter(queue, None, message, MAXLEN, rule))

    def takers(
        self, queues: list[MessageTaker], message: Message, now_ms: i64
    ) -> list[MessageTaker]:
        takers = queues
        while True:
            refusing = [queue for queue in takers if queue.is_full_for(message)]
            if len(refusing) == 0:
                return takers
            takers = [queue for queue in takers if queue not in refusing]
            # The dead letters of refusing queues may fill other takers, so the loop looks again.
            self._publish_refused(_letters_of(refusing, message), now_ms)

    def move_refused(
        self, queue: MessageTaker, copy: MovedMessage, now_ms: i64
    ) -> MovedMessage | None:
        rule = queue.refused_rule()
        if rule is None or not queue.is_full_for(copy):
            return None
        routed = self._route(_DeadLetter(queue, None, copy, MAXLEN, rule), copy, now_ms)
        if routed is None or len(distant_of(routed.queues)) > 0:
            return None
        self.counts[MAXLEN] = self.counts.get(MAXLEN, 0) + 1
        routed = self._past_refusals(routed, copy, now_ms, False)
        moved = _moved(routed, copy, copy.origin_id, copy.origin_seq, now_ms)
        self._arrive(routed, self.takers(routed.queues, moved, now_ms), moved, now_ms)
        return moved

    def _publish_refused(self, letters: list[_DeadLetter], now_ms: i64) -> None:
        """Publish dead letters of refused messages, and those that come of them.

        A message that was rejected once may circle among full queues, which are each other's
        targets, for as long as they are full. When it comes to a queue again it waits for the next
        turn, so that no turn is endless.
        """
        while len(letters) > 0:
            letter = letters.pop(0)
            refused = letter.refused
            assert refused is not None
            self.counts[MAXLEN] = self.counts.get(MAXLEN, 0) + 1
            routed = self._route(letter, refused, now_ms)
            if routed is None:
                continue
            copy = Message(routed.address, routed.raw, refused.body, refused.persistent, now_ms)
            full = [queue for queue in routed.queues if queue.is_full_for(copy)]
            for child in _letters_of(full, copy):
                if child.queue in letter.refusers:
                    self._add(child)
                else:
                    child.refusers.extend(letter.refusers)
                    letters.append(child)
            distant = [queue for queue in distant_of(routed.queues) if queue not in full]
            if len(distant) > 0:
                # The refused message has no place where it could wait for these copies.
                options = CopyOptions(NO_LIMIT, routed.properties.priority)
                self.handovers.remote.send(None, distant, copy, options, now_ms)
            takers = [queue for queue in local_of(routed.queues) if queue not in full]
            self._arrive(routed, takers, copy, now_ms)

    def _add(self, letter: _DeadLetter) -> None:
        if len(self._pending) == 0:
            self._vhost.node.wake()
        self._pending.append(letter)

    def advance(self, now_ms: i64) -> bool:
        """Publish a slice of the dead letters; True if more can be done at once."""
        pending = self._pending
        if len(pending) == 0 or self._is_loading:
            return False
        end: i64 = min(self._next + SLICE_LETTERS, len(pending))
        vhost = self._vhost
        steps_end: i64 = vhost.route_steps + self.slice_steps
        while self._next < end and vhost.route_steps < steps_end:
            letter = pending[self._next]
            entry = letter.entry
            if (
                entry is not None
                and entry.form != ALPHA
                and self.handovers.has(entry)
                and self._load(entry)
            ):
                return False
            self._next += 1
            self._publish(letter, now_ms)
        if self._next < len(pending):
            return True
        self._pending = []
        self._next = 0
        return False

    def _publish(self, letter: _DeadLetter, now_ms: i64) -> None:
        reason = letter.reason
        self.counts[reason] = self.counts.get(reason, 0) + 1
        entry = letter.entry
        message = letter.refused
        if entry is not None:
            if not self.handovers.has(entry):
                # The content is lost, and the queue has settled the entry.
                return
            if entry.form != ALPHA:
                # The queue was deleted, and the content with it.
                self.handovers.settle(entry, reason, now_ms)
                return
            message = entry.message
        assert message is not None
        routed = self._route(letter, message, now_ms)
        if routed is None:
            if entry is not None:
                self.handovers.settle(entry, reason, now_ms)
            return
        if entry is not None:
            routed = self._past_refusals(routed, message, now_ms, True)
        distant = distant_of(routed.queues)
        if len(distant) == 0:
            self.arrive(letter, routed, message, now_ms)
            return
        copied = _CopiedLetter(self, letter, routed, message)
        routed.queues = local_of(routed.queues)
        copy = Message(routed.address, routed.raw, message.body, message.persistent, now_ms)
        options = CopyOptions(NO_LIMIT, routed.properties.priority)
        self.handovers.remote.send(copied, distant, copy, options, now_ms)

    def arrive(self, letter: _DeadLetter, routed: _Routed, message: Message, now_ms: i64) -> None:
        """Publish the dead letter made of `message` to its queues on this node, and let it go."""
        entry = letter.entry
        if (
            entry is None
            or not self.handovers.has(entry)
            # A transient message may be in the index, where no start takes it from.
            or not entry.persistent
            or entry.journal_state == NOT_JOURNALED
        ):
            copy = Message(routed.address, routed.raw, message.body, message.persistent, now_ms)
            self._arrive(routed, self.takers(routed.queues, copy, now_ms), copy, now_ms)
            if entry is not None and self.handovers.has(entry):
                self.handovers.settle(entry, letter.reason, now_ms)
            return
        routed = self._past_refusals(routed, message, now_ms, False)
        moved = _moved(routed, message, entry.ledger.queue_id, entry.seq, now_ms)
        self._arrive(routed, self.takers(routed.queues, moved, now_ms), moved, now_ms)
        self.handovers.on_moved(entry, letter.reason, moved)

    def _past_refusals(
        self, routed: _Routed, message: Message, now_ms: i64, may_cross: bool
    ) -> _Routed:
        """Where the dead letter goes in the end, if its only queue refuses it, and so on.

        One record then says where the message is, and that it has left its queue. With several
        queues each dead letter of a refused message has a record of its own, and a crash may double
        it. `may_cross`: the end may be a queue that lives on another node, or has copies there.
        """
        refusers: list[MessageTaker] = []
        while len(routed.queues) == 1 and len(routed.waits) == 0:
            queue = routed.queues[0]
            rule = queue.refused_rule()
            if rule is None or queue in refusers:
                break
            copy = Message(routed.address, routed.raw, message.body, message.persistent, now_ms)
            if not queue.is_full_for(copy):
                break
            refusers.append(queue)
            after = self._route(_DeadLetter(queue, None, copy, MAXLEN, rule), copy, now_ms)
            if after is None or (not may_cross and len(distant_of(after.queues)) > 0):
                break
            self.counts[MAXLEN] = self.counts.get(MAXLEN, 0) + 1
            routed = after
        return routed

    def _arrive(
        self, routed: _Routed, takers: list[MessageTaker], copy: Message, now_ms: i64
    ) -> None:
        properties = routed.properties
        arrive(takers, copy, NO_LIMIT, properties.priority, now_ms, False, may_refuse=False)
        self.delayed.keep_all(copy, routed.waits, properties.headers, False, now_ms)

    def _route(self, letter: _DeadLetter, message: Message, now_ms: i64) -> _Routed | None:
        """Find where the dead letter made of `message` goes; None: nowhere."""
        vhost = self._vhost
        rule = letter.rule
        exchange = vhost.router.exchanges.get(rule.exchange)
        if exchange is None:
            return None
        reason = REASON_TEXTS[letter.reason]
        key = message.routing_key()
        raw = self._headers.of(
            message.properties,
            message.exchange(),
            key,
            letter.queue.name,
            reason,
            now_ms // 1000,
            rule.routing_key is None,
        )
        properties = self._properties
        if raw != properties.source:
            properties = inspect_properties(raw)
            self._properties = properties
        keys = [key]
        if rule.routing_key is not None:
            keys[0] = rule.routing_key
        else:
            keys.extend(properties.extra_routing_keys)
        waits: list[Exchange] = []
        queues = vhost.route(exchange, keys, properties.headers, properties.raw, waits)
        if letter.reason != REJECTED and len(queues) > 0:
            queues = self._without_cycles(letter, queues, raw, reason)
        if len(queues) == 0 and len(waits) == 0:
            return None
        name = rule.exchange
        address = bytes([len(name)]) + name + bytes([len(keys[0])]) + keys[0]
        return _Routed(queues, waits, address, raw, properties)

    def _without_cycles(
        self, letter: _DeadLetter, queues: list[MessageTaker], raw: bytes, reason: bytes
    ) -> list[MessageTaker]:
        """The queues in which the message has not died before without a reject in between."""
        cycling = cycling_queues(raw, reason, [queue.name for queue in queues])
        if len(cycling) == 0:
            return queues
        for name in cycling:
            pair = (letter.queue.name, name)
            if pair not in self._logged and len(self._logged) < 1000:
                self._logged.add(pair)
                logger.warning(
                    "vhost '%s': dead letters of queue '%s' are dropped where they would enter queue '%s' again",
                    self._vhost.name.decode("utf-8", "replace"),
                    pair[0].decode("utf-8", "replace"),
                    name.decode("utf-8", "replace"),
                )
        return [queue for queue in queues if queue.name not in cycling]

    def _load(self, first: Entry) -> bool:
        """Read the contents of the next dead letters of one queue, which are on disk only.

        False if the queue is deleted.
        """
        queue = first.queue
        assert isinstance(queue, Queue)
        backing = queue.backing_of(first.ledger)
        if backing.is_deleted:
            return False
        entries: list[Entry] = []
        place = self._next
        while place < len(self._pending) and len(entries) < _LOAD_LETTERS:
            entry = self._pending[place].entry
            place += 1
            if entry is not None and entry.ledger is first.ledger and entry.form != ALPHA:
                entries.append(entry)
        self._is_loading = True
        backing.loader.submit(
            EntryContents(backing, entries, self.handovers.has, self._on_contents)
        )
        return True

    def _on_contents(self, _lost: list[Entry]) -> None:
        # `Handovers.forget_lost` has forgotten the lost ones.
        self._is_loading = False
        self._vhost.node.wake()


class _CopiedLetter(CopyWaiter):
    """A dead letter whose copies for other nodes have to arrive first."""

    def __init__(
        self, letters: DeadLetters, letter: _DeadLetter, routed: _Routed, message: Message
    ) -> None:
        self._letters: DeadLetters = letters
        self._letter: _DeadLetter = letter
        self._routed: _Routed = routed
        self._message: Message = message

    def on_copied(self, now_ms: i64) -> None:
        self._letters.arrive(self._letter, self._routed, self._message, now_ms)
