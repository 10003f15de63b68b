"""The oracle of messages that leave queues by rule.

A message is in one queue at a time, or in several after a fan-out of dead letters. One stay of one
message in one queue is named by the deaths in its header x-death: a `Stay`. So a message that comes
twice in the same stay is doubled, and one of which no stay is left is lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simulator.leaving.histories import (
    FANOUT,
    FANOUT_QUEUES,
    MISSING,
    NOWHERE,
    REJECT_PUBLISH,
    SAME_KEY,
    QueueRules,
)
from simulator.models.messages import Violation

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"

# (queue, reason, count), as in x-death.
Deaths = frozenset[tuple[int, str, int]]


class Stay(NamedTuple):
    """A message in a queue after `deaths`."""

    number: int
    queue: int
    deaths: Deaths

    def dies(self, reason: str) -> Deaths:
        """The deaths after one more, in this queue for `reason`."""
        count = 1
        others = set(self.deaths)
        for death in self.deaths:
            if death[:2] == (self.queue, reason):
                others.remove(death)
                count += death[2]
        return frozenset(others | {(self.queue, reason, count)})

    def is_before(self, other: Stay) -> bool:
        """Whether the message came to `other` from here, if dead letters have one target each."""
        counts = {death[:2]: death[2] for death in other.deaths}
        mine = {death[:2]: death[2] for death in self.deaths}
        return (
            self.number == other.number
            and all(counts.get(death, 0) >= count for death, count in mine.items())
            and any(
                place[0] == self.queue and count > mine.get(place, 0)
                for place, count in counts.items()
            )
        )


class MessageModel:
    """A published message; times in ms, 0 for none. `queue` is where its publisher sent it."""

    def __init__(
        self,
        number: int,
        queue: int,
        body: bytes,
        is_persistent: bool,
        expiration_ms: int,
        priority: int,
        published_ms: int,
        delay_ms: int,
    ) -> None:
        self.number = number
        self.queue = queue
        self.body = body
        self.is_persistent = is_persistent
        self.expiration_ms = expiration_ms
        self.priority = priority
        # When the message reaches its queue at the earliest.
        self.due_ms = published_ms + delay_ms
        self.is_delayed = delay_ms > 0
        self.is_confirmed = False
        self.is_refused = False
        # The publish gave the message a place in its queue; a refused one gets none.
        self.has_seq = False
        # The node went down since the publish.
        self.saw_crash = False


class StayRecord:
    """One message in one queue, from its arrival to its end, and what clients did with it."""

    def __init__(self) -> None:
        # A client has the message, and has not settled it.
        self.is_out = False
        # Since the last crash the message was acked, or became a dead letter.
        self.is_gone = False
        # The node was at rest after the message had gone: no crash brings it back.
        self.is_final = False
        self.was_acked = False
        self.was_rejected = False
        # How often the message was returned since the last crash, and whether it ever was.
        self.returns = 0
        self.was_returned = False
        # Step at which it became ready.
        self.ready_step = 0


class RuleBook:
    """The rules that each queue had since the beginning: a crash may undo a policy."""

    def __init__(self, rules: tuple[QueueRules, ...]) -> None:
        self._ever: list[list[QueueRules]] = [[each] for each in rules]
        self.has_fanout = any(each.dead_letters == FANOUT for each in rules)

    def add(self, queue: int, rules: QueueRules) -> None:
        """Note that `rules` may be in force from now on."""
        self._ever[queue].append(rules)
        self.has_fanout |= rules.dead_letters == FANOUT

    def is_ambiguous(self, stay: Stay) -> bool:
        """Whether a message can come to `stay` twice: it was spread to several queues twice."""
        return (
            self.has_fanout
            and sum(
                count
                for queue, _, count in stay.deaths
                if any(rules.dead_letters == FANOUT for rules in self._ever[queue])
            )
            > 1
        )

    def ever(self, queue: int) -> list[QueueRules]:
        """All rules of a queue so far."""
        return self._ever[queue]

    def ttl_ms(self, queue: int, expiration_ms: int) -> int:
        """The shortest time that a message may have to live in `queue`; 0: any time."""
        times = [rules.ttl_ms for rules in self._ever[queue]] + [expiration_ms]
        return min((time for time in times if time), default=0)

    def is_plain(self, queue: int, expiration_ms: int) -> bool:
        """Whether no rule removes an unrejected message from `queue`."""
        return not self.ttl_ms(queue, expiration_ms) and not any(
            rules.has_limit() or rules.is_quorum for rules in self._ever[queue]
        )


def targets(rules: QueueRules, stay: Stay, key: int, reason: str) -> list[tuple[Stay, int]]:
    """The stays after `stay` died for `reason`, each with the queue that its routing key names."""
    deaths = stay.dies(reason)
    where = rules.dead_letters
    if where in (NOWHERE, MISSING):
        return []
    next_key = key if where in (FANOUT, SAME_KEY) else where
    queues = list(FANOUT_QUEUES) if where == FANOUT else [next_key]
    died = {queue for queue, _, _ in deaths}
    # A message that would cycle without a reject is dropped; x-death says where it was.
    return [
        (Stay(stay.number, queue, deaths), next_key)
        for queue in queues
        if reason == REJECTED or queue not in died
    ]


class Cover:
    """Whether a message is accounted for: found, acked, or dead by rule with all its dead letters.

    `found`: the stays that are there. `now_ms`: rules of time have acted until then.
    """

    def __init__(
        self,
        book: RuleBook,
        records: dict[Stay, StayRecord],
        found: set[Stay],
        now_ms: int,
    ) -> None:
        self._book = book
        self._records = records
        self._found = found
        self._now_ms = now_ms
        self._known: dict[tuple[Stay, int, int], bool] = {}

    def has(self, message: MessageModel) -> bool:
        """Whether `message` is accounted for."""
        root = Stay(message.number, message.queue, frozenset())
        ttl_ms = self._book.ttl_ms(message.queue, message.expiration_ms)
        if message.is_delayed and self._may_refuse(message.queue):
            return True
        return self._covers(root, message.queue, message.due_ms, ttl_ms)

    def _covers(self, stay: Stay, key: int, arrived_ms: int, ttl_ms: int) -> bool:
        place = (stay, key, arrived_ms)
        known = self._known.get(place)
        if known is None:
            # A death that leads back here accounts for nothing.
            self._known[place] = False
            known = self._is_here(stay) or self._is_dead(stay, key, arrived_ms, ttl_ms)
            self._known[place] = known
        return known

    def _is_here(self, stay: Stay) -> bool:
        record = self._records.get(stay)
        return stay in self._found or (record is not None and record.was_acked)

    def _may_refuse(self, queue: int) -> bool:
        """Whether `queue` may drop a message that arrives without a publisher to refuse it to."""
        return any(
            rules.has_limit() and rules.overflow == REJECT_PUBLISH
            for rules in self._book.ever(queue)
        )

    def _is_dead(self, stay: Stay, key: int, arrived_ms: int, ttl_ms: int) -> bool:
        record = self._records.get(stay)
        if stay.deaths and self._may_refuse(stay.queue):
            return True
        reasons: dict[str, int] = {}
        if record is not None and record.was_rejected:
            reasons[REJECTED] = arrived_ms
        if ttl_ms and arrived_ms + ttl_ms <= self._now_ms:
            reasons[EXPIRED] = arrived_ms + ttl_ms
        if any(rules.has_limit() for rules in self._book.ever(stay.queue)):
            reasons[MAXLEN] = arrived_ms
        if record is not None and record.was_returned:
            if any(rules.delivery_limit for rules in self._book.ever(stay.queue)):
                reasons[DELIVERY_LIMIT] = arrived_ms
        for reason, died_ms in reasons.items():
            for rules in self._book.ever(stay.queue):
                letters = targets(rules, stay, key, reason)
                if all(
                    self._covers(each, next_key, died_ms, self._book.ttl_ms(each.queue, 0))
                    for each, next_key in letters
                ):
                    return True
        return False


def check_death(message: MessageModel, stay: Stay, book: RuleBook, now_ms: int) -> None:
    """Violation if a rule cannot have caused the deaths of `stay`."""
    for queue, reason, _ in stay.deaths:
        every = book.ever(queue)
        expiration_ms = message.expiration_ms if queue == message.queue else 0
        ttl_ms = book.ttl_ms(queue, expiration_ms)
        if reason == EXPIRED and (not ttl_ms or now_ms < message.due_ms + ttl_ms):
            raise Violation("early", f"message {stay.number} expired in q{queue} before its time")
        if reason == MAXLEN and not any(rules.has_limit() for rules in every):
            raise Violation("death", f"message {stay.number} left q{queue}, which has no limit")
        if reason == DELIVERY_LIMIT and not any(rules.delivery_limit for rules in every):
            raise Violation("death", f"message {stay.number} left q{queue} without a limit")
