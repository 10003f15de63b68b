"""The oracle of messages that leave queues by rule: it judges deliveries, confirms and restarts.

A message that was confirmed and is persistent is always accounted for (`Cover`). Each of its stays
comes once, and comes twice only after a crash. On a disk after a crash no message is both in a
queue and, as its dead letter, in another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from simulator.leaving.histories import (
    DROP_HEAD,
    QueueRules,
)
from simulator.leaving.model import (
    Cover,
    Deaths,
    MessageModel,
    RuleBook,
    Stay,
    StayRecord,
    check_death,
)
from simulator.models.messages import Violation, number_of
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import decode_properties

_NO_DEATHS: Final[Deaths] = frozenset()


def stay_of(queue: int, properties: bytes, body: bytes) -> Stay:
    """The stay in `queue` of a delivered message."""
    headers = decode_properties(properties).headers
    found = to_python(decode_table(headers)).get("x-death") if headers else None
    if found is None:
        return Stay(number_of(body), queue, _NO_DEATHS)
    assert isinstance(found, list)
    deaths = [(int(each["queue"][1:]), each["reason"], each["count"]) for each in found]
    if len({death[:2] for death in deaths}) < len(deaths):
        raise Violation("x-death", f"a queue and reason stand twice in {deaths}")
    return Stay(number_of(body), queue, frozenset(deaths))


class Found(NamedTuple):
    """A message that a drained node gave away, and when (ms)."""

    stay: Stay
    body: bytes
    now_ms: int


class LeavingOracle:
    """Everything that clients have seen in one history."""

    def __init__(self, rules: tuple[QueueRules, ...]) -> None:
        self.book = RuleBook(rules)
        self.messages: dict[int, MessageModel] = {}
        self.records: dict[Stay, StayRecord] = {}
        self.step = 0

    def published(self, message: MessageModel) -> None:
        """Note a publish, before the node handles it."""
        self.messages[message.number] = message
        record = StayRecord()
        record.ready_step = self.step
        self.records[Stay(message.number, message.queue, _NO_DEATHS)] = record

    def confirmed(self, number: int, ok: bool, has_failed: bool) -> None:
        """Note the answer to a publish. `has_failed`: a commit failed since the publish."""
        message = self.messages[number]
        if ok:
            message.is_confirmed = True
            return
        message.is_refused = not has_failed
        if has_failed:
            return
        every = self.book.ever(message.queue)
        if not any(rules.has_limit() and rules.overflow != DROP_HEAD for rules in every):
            raise Violation("nack", f"message {number} was refused, and q{message.queue} takes all")
        record = self.records[Stay(number, message.queue, _NO_DEATHS)]
        if message.has_seq:
            raise Violation("written", f"message {number} was refused, and had a place")
        if record.is_out or record.is_gone:
            raise Violation("written", f"message {number} was delivered, and refused")

    def delivered(self, stay: Stay, body: bytes, redelivered: bool, now_ms: int) -> StayRecord:
        """Judge a delivery; returns the record of the stay, which is out now."""
        message = self._judged(stay, body, now_ms)
        record = self.records.setdefault(stay, StayRecord())
        is_known = record.is_gone or record.is_out or record.is_final
        if is_known and not self.book.is_ambiguous(stay):
            raise Violation("twice", f"{stay} came although a client has it, or settled it")
        if record.returns and not redelivered:
            raise Violation("redelivered", f"{stay} was returned, and has not the flag")
        limits = {rules.delivery_limit for rules in self.book.ever(stay.queue)}
        if 0 not in limits and record.returns > max(limits):
            raise Violation("limit", f"{stay} was returned {record.returns} times, and came again")
        self._bury(stay, message)
        record.is_out = True
        return record

    def _judged(self, stay: Stay, body: bytes, now_ms: int) -> MessageModel:
        """The message of a delivery or of one that a start has found, whose content is right."""
        message = self.messages.get(stay.number)
        if message is None or message.body != body:
            raise Violation("corrupt", f"{body[:16]!r}... came, which nobody published")
        if now_ms < message.due_ms:
            raise Violation("early", f"message {stay.number} came before {message.due_ms}")
        check_death(message, stay, self.book, now_ms)
        if stay.deaths:
            return message
        if stay.queue != message.queue:
            raise Violation("route", f"message {stay.number} came to q{stay.queue}")
        if message.is_refused:
            raise Violation("written", f"message {stay.number} was refused, and is in its queue")
        every = self.book.ever(stay.queue)
        times = (
            [message.expiration_ms] if len(every) > 1 else [message.expiration_ms, every[0].ttl_ms]
        )
        ttl_ms = min((time for time in times if time), default=0)
        if ttl_ms and not message.is_delayed and now_ms >= message.due_ms + ttl_ms:
            raise Violation("late", f"message {stay.number} came after its expiry")
        return message

    def _bury(self, stay: Stay, message: MessageModel) -> None:
        """The stays that led to `stay` are over."""
        if self.book.has_fanout or not stay.deaths:
            return
        for other, record in self.records.items():
            if not other.is_before(stay):
                continue
            is_known = record.is_out or record.was_acked
            if is_known and not record.was_rejected and not message.saw_crash:
                raise Violation("doubled", f"{stay} came, and {other} is with a client, or acked")
            record.is_gone = True

    # -- what clients do ---------------------------------------------------------------------------

    def acked(self, stay: Stay) -> None:
        """A client acks a message that it has, or got without acknowledgements."""
        record = self.records[stay]
        record.is_out, record.is_gone, record.was_acked = False, True, True

    def rejected(self, stay: Stay) -> None:
        """A client rejects a message that it has; it becomes a dead letter."""
        record = self.records[stay]
        record.is_out, record.is_gone, record.was_rejected = False, True, True

    def returned(self, stay: Stay, is_counted: bool = True) -> None:
        """A message is in its queue again."""
        record = self.records[stay]
        record.is_out, record.was_returned = False, True
        record.ready_step = self.step
        if is_counted:
            record.returns += 1

    def rested(self) -> None:
        """The node is at rest: what is gone is gone for ever."""
        for record in self.records.values():
            record.is_final |= record.is_gone

    def crashed(self) -> None:
        """The node went down: what was not durable may be there again."""
        for message in self.messages.values():
            message.saw_crash = True
        for record in self.records.values():
            if record.is_out:
                record.was_returned = True
            record.is_out = False
            record.is_gone = record.is_final
            record.returns = 0
            record.ready_step = self.step

    # -- the whole ---------------------------------------------------------------------------------

    def check_found(self, contents: Iterable[Found], now_ms: int, end_ms: int) -> None:
        """Judge what a drained node gave away until `now_ms`, or `end_ms` for delayed messages."""
        found: set[Stay] = set()
        by_number: dict[int, list[Stay]] = {}
        for stay, body, given_ms in contents:
            self._judged(stay, body, given_ms)
            record = self.records.get(stay)
            is_ambiguous = self.book.is_ambiguous(stay)
            if record is not None and record.is_final and not is_ambiguous:
                raise Violation("returned", f"{stay} was settled, and is there after a restart")
            if stay in found and not is_ambiguous:
                raise Violation("twice", f"{stay} is there twice")
            found.add(stay)
            for other in by_number.setdefault(stay.number, []):
                if not self.book.has_fanout and (other.is_before(stay) or stay.is_before(other)):
                    raise Violation("doubled", f"{stay} and {other} are both there")
            by_number[stay.number].append(stay)
        cover = Cover(self.book, self.records, found, now_ms)
        later = Cover(self.book, self.records, found, end_ms)
        for message in self.messages.values():
            if message.saw_crash and not (message.is_confirmed and message.is_persistent):
                continue
            if message.is_refused or not message.is_confirmed:
                continue
            if not (later if message.is_delayed else cover).has(message):
                raise Violation("lost", f"message {message.number} of q{message.queue} is gone")

    def check_order(self, stay: Stay, sent_step: int) -> None:
        """Violation if basic.get, sent in `sent_step`, should have got another message.

        Only messages that certainly were in the queue count.
        """
        message = self.messages[stay.number]
        for other, record in self.records.items():
            if other.queue != stay.queue or other.deaths or other.number == stay.number:
                continue
            if record.is_out or record.is_gone or record.was_acked or record.was_rejected:
                continue
            waiting = self.messages[other.number]
            is_sure = (
                waiting.is_confirmed
                and not waiting.is_delayed
                and (waiting.is_persistent or not waiting.saw_crash)
                and record.ready_step < sent_step
                and self.book.is_plain(other.queue, waiting.expiration_ms)
            )
            if not is_sure:
                continue
            levels = self.book.ever(other.queue)[0].max_priority
            mine, its = min(message.priority, levels), min(waiting.priority, levels)
            is_first = its > mine
            if its == mine and not stay.deaths and not message.is_delayed:
                is_first = other.number < stay.number
            if is_first:
                raise Violation("order", f"{stay} came, and {other} waits before it")
