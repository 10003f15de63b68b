"""The promises about messages that leave the queues of a simulated cluster by rule.

A message is gone before a consumer acked it only if its queue's rules allow that: it was rejected,
its time was over, or a limit had enough other messages to keep. If its queue has a dead-letter
exchange, the target has it then, or has lost it by a rule of its own. An unsafe promotion
(`ha-promote-on-failure: always`) may lose what was published before it, and nothing else.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from simulator.checker.facts import DeliveryFacts, Facts
from simulator.cluster.recording.features import NO_RULES
from simulator.cluster.recording.letters import (
    Death,
    is_letter,
    letter_name,
    origin_of,
)
from simulator.leaving.histories import DROP_HEAD, NOWHERE, REJECT_PUBLISH, QueueRules
from simulator.leaving.model import EXPIRED, MAXLEN, REJECTED
from simulator.models.messages import Violation

# A message may be delivered so long (ms) after its time: the time of a node moves in steps.
LATE_MS: Final = 300


class SentMessage(NamedTuple):
    """A message as its publisher sent it; moments of the history (us) and of the clock (ms)."""

    at_us: int
    at_ms: int
    queues: tuple[str, ...]
    is_persistent: bool
    # The property `expiration` (ms); 0: none.
    expiration_ms: int


class Promises:
    """The rules of the queues of one history, and what clients did that the rules refer to."""

    def __init__(self, rules: tuple[QueueRules, ...]) -> None:
        self._rules = rules
        self.sent: dict[str, SentMessage] = {}
        # When the broker answered that it has a message.
        self._confirmed_ms: dict[str, int] = {}
        # Deliveries that clients have rejected for good: (session, tag), and (message, queue name).
        self._rejected_tags: set[tuple[str, int]] = set()
        self._rejected: set[tuple[str, str]] = set()
        # The last unsafe promotion of each queue.
        self._unsafe_us: dict[str, int] = {}
        self._unsafe_epochs: dict[str, int] = {}
        # When a copy led each queue last that was being synchronised when its last master died.
        self._partial_us: dict[str, int] = {}
        # When a crash has taken the transient messages of a queue last.
        self._crashed_us: dict[str, int] = {}
        # When a queue was found empty (ms).
        self._drained_ms: dict[str, int] = {}

    def of(self, queue: str) -> QueueRules:
        """The rules of a queue, which is named with its birth or without."""
        if not self._rules or not queue:
            return NO_RULES
        number = int(name_of(queue)[1:])
        return self._rules[number] if number < len(self._rules) else NO_RULES

    def target_of(self, queue: str) -> str:
        """The name of the queue that gets the dead letters of `queue`; "" for none."""
        number = self.of(queue).dead_letters
        return "" if number == NOWHERE else f"q{number}"

    def level_in(self, queue: str, priority: int) -> int:
        """The level of a message with this priority in a queue."""
        return min(priority, self.of(queue).max_priority)

    # -- what happens ------------------------------------------------------------------------------

    def published(self, message: str, sent: SentMessage) -> None:
        """A message is about to be sent."""
        self.sent[message] = sent

    def confirmed(self, message: str, now_ms: int) -> None:
        """The broker has a message."""
        self._confirmed_ms.setdefault(message, now_ms)

    def rejected(self, session: str, tag: int, message: str, queue: str) -> None:
        """A client is about to reject a message for good."""
        self._rejected_tags.add((session, tag))
        self._rejected.add((message, name_of(queue)))

    def crashed(self, queue: str, at_us: int) -> None:
        """A crash has taken the transient messages of a queue."""
        self._crashed_us[queue] = at_us

    def promoted_partial(self, queue: str, at_us: int) -> None:
        """A copy leads a queue that may have messages of sinks without receipts."""
        self._partial_us[queue] = at_us

    def may_double(self, message: str, queue: str) -> bool:
        """Whether a queue may have a message of a sink twice: it was under way at such a moment."""
        return self._partial_us.get(queue, -1) >= self.sent[message].at_us

    def is_unsafe_since(self, queue: str, at_us: int) -> bool:
        """Whether an unsafe promotion may have lost messages of a queue since then."""
        return self._unsafe_us.get(queue, -1) >= at_us

    def unsafe_epoch(self, queue: str) -> int:
        """The epoch of the last unsafe promotion of a queue; 0: there was none."""
        return self._unsafe_epochs.get(queue, 0)

    def promoted_unsafely(self, queue: str, epoch: int, at_us: int) -> None:
        """A copy that was not in sync leads a queue from `epoch` on: older messages may be gone."""
        self._unsafe_us[queue] = at_us
        self._unsafe_epochs[queue] = epoch

    def drained(self, queue: str, now_ms: int) -> None:
        """A queue is empty, and what it had was delivered."""
        self._drained_ms[queue] = now_ms

    def check_delivery(
        self, message: str, deaths: tuple[Death, ...], queue: str, now_ms: int, is_local: bool
    ) -> None:
        """Violation if a message comes where or when it must not.

        `is_local`: the node of the client has the queue, so nothing was on its way between nodes.
        """
        sent = self.sent.get(origin_of(message))
        if sent is None:
            return
        if deaths:
            self._check_deaths(message, deaths, queue, sent, now_ms)
            return
        ttl_ms = self._ttl_ms(message, queue)
        answered_ms = self._confirmed_ms.get(message)
        if ttl_ms and is_local and answered_ms is not None:
            late_ms = now_ms - answered_ms - ttl_ms
            if late_ms > LATE_MS:
                raise Violation("late", f"{message} came from {queue} {late_ms} ms after its time")

    def _check_deaths(
        self, message: str, deaths: tuple[Death, ...], queue: str, sent: SentMessage, now_ms: int
    ) -> None:
        places = [*(death.queue for death in deaths), name_of(queue)]
        if places[0] not in map(name_of, sent.queues) or any(
            self.target_of(one) != other for one, other in pairwise(places)
        ):
            raise Violation("letter", f"{message} came to {queue}")
        name = origin_of(message)
        for death in deaths:
            rules = self.of(death.queue)
            ttl_ms = self._ttl_ms(name, death.queue)
            is_due = ttl_ms > 0 and now_ms >= sent.at_ms + ttl_ms
            if (
                (death.reason == EXPIRED and not is_due)
                or (death.reason == MAXLEN and not rules.has_limit())
                or (death.reason == REJECTED and (name, death.queue) not in self._rejected)
                or death.reason not in (EXPIRED, MAXLEN, REJECTED)
            ):
                raise Violation("death", f"{name} died in {death.queue}: {death.reason}")
            name = letter_name(name, death.queue)

    # -- verdict -----------------------------------------------------------------------------------

    def is_dead_letter(self, delivery: DeliveryFacts) -> bool:
        """Whether a client has rejected a delivery, and a dead letter comes of that."""
        queue = delivery.session.start.queue
        return self._is_rejected(delivery) and self.of(queue).dead_letters != NOWHERE

    def _is_rejected(self, delivery: DeliveryFacts) -> bool:
        return (delivery.event.session, delivery.event.tag) in self._rejected_tags

    def loss(self, facts: Facts, message: str, queue: str) -> str:
        """How a confirmed message has left a queue against its rules; "" if it has not."""
        if queue not in facts.drained or self._may_be_forgotten(message, queue):
            return ""
        known = facts.messages.get(message)
        deliveries = [] if known is None else known.deliveries.get(queue, [])
        if any(each.is_acked and not self._is_rejected(each) for each in deliveries):
            return ""
        if not any(map(self._is_rejected, deliveries)):
            if self._may_be_refused(facts, message, queue):
                return ""
            if not self._may_go(facts, message, queue):
                return f"{message} is gone from {queue}"
        name = self.target_of(queue)
        target = next((each for each in facts.drained if name_of(each) == name), "")
        letter = letter_name(message, name_of(queue))
        return self.loss(facts, letter, target) if target else ""

    def _may_be_forgotten(self, message: str, queue: str) -> bool:
        """Whether a crash may have taken a message that no disk had, or an unsafe promotion any."""
        sent = self.sent[origin_of(message)]
        if self._unsafe_us.get(queue, 0) >= sent.at_us:
            return True
        return not sent.is_persistent and self._crashed_us.get(queue, 0) >= sent.at_us

    def _may_go(self, facts: Facts, message: str, queue: str) -> bool:
        sent = self.sent[origin_of(message)]
        ttl_ms = self._ttl_ms(message, queue)
        if ttl_ms and self._drained_ms[queue] >= sent.at_ms + ttl_ms:
            return True
        # Only a dead letter is confirmed to nobody when a full queue refuses it.
        is_limited = self.of(queue).overflow == DROP_HEAD or is_letter(message)
        return is_limited and self._may_be_full(facts, message, queue)

    def _may_be_refused(self, facts: Facts, message: str, queue: str) -> bool:
        """Whether a full queue may have refused a dead letter, of which no other comes."""
        is_refusing = self.of(queue).overflow == REJECT_PUBLISH
        return is_letter(message) and is_refusing and self._may_be_full(facts, message, queue)

    def _may_be_full(self, facts: Facts, message: str, queue: str) -> bool:
        max_length = self.of(queue).max_length
        return max_length > 0 and self._count_others(facts, message, queue) >= max_length

    def _count_others(self, facts: Facts, message: str, queue: str) -> int:
        """The most messages that a limit may have kept instead of this one."""
        name = name_of(queue)
        has_order = not is_letter(message) and not self.of(queue).max_priority
        count = 0
        for other, sent in self.sent.items():
            if other != message and queue in sent.queues:
                confirms = facts.messages[other].confirms if has_order else []
                # The queue drops messages that were in it before this one earlier than this one.
                count += not (confirms and confirms[0].at_us < self.sent[message].at_us)
            count += any(self._reaches(each, name) for each in sent.queues)
        return count

    def _reaches(self, queue: str, name: str) -> bool:
        """Whether dead letters of `queue` may come to the queue `name`."""
        target = self.target_of(queue)
        return bool(target) and (target == name or self._reaches(target, name))

    def _ttl_ms(self, message: str, queue: str) -> int:
        """How long a message may wait in a queue (ms); 0: for ever."""
        times = [self.of(queue).ttl_ms]
        if not is_letter(message):
            times.append(self.sent[message].expiration_ms)
        return min((time for time in times if time), default=0)


def name_of(queue: str) -> str:
    """The name of a queue without its birth."""
    return queue.partition("#")[0]


def check_falling(levels: list[int], queue: str) -> None:
    """Violation if messages that were all in a priority queue came in another order of levels."""
    if levels != sorted(levels, reverse=True):
        raise Violation("priority", f"{queue} gave its messages in the order of levels {levels}")
