"""Differences between warren and RabbitMQ that are intended.

docs/differences.md and docs/protocol-notes.md tell users of them. A sequence ends with the first
one that leaves the brokers in different states.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.steps import Step

Lines = list[str]

# The number of consumers in declare-ok.
_DECLARED = re.compile(r"(?<=QueueDeclareOk\('q\d', )(\d+), \d+")

# How often a message was returned to a quorum queue, and whether a message was delivered before.
_RETURNS = re.compile(r"x-delivery-count: l\d+")
_REDELIVERED = re.compile(r"(BasicGetOk\(\d+, | gets )False")

# The body of a message, which no other message has unless it is empty.
_BODY = re.compile(r" b'(m\d+|)[.]*'$", re.MULTILINE)


@dataclass(frozen=True)
class Intended:
    """An intended difference: why it is one, and how to tell it by a step and what each shows.

    `needs`: traits that the sequence must have. `is_harmless`: the brokers are in the same state
    all the same.
    """

    reason: str
    applies: Callable[[Step, Lines, Lines], bool]
    needs: frozenset[str] = frozenset()
    is_harmless: bool = False


def _is_hash_of_no_text(step: Step, ours: Lines, theirs: Lines) -> bool:
    return step.values.get("type") == "x-consistent-hash" and any("541" in line for line in theirs)


def _counts_other_consumers(step: Step, ours: Lines, theirs: Lines) -> bool:
    return [_DECLARED.sub(r"\1", line) for line in ours] == [
        _DECLARED.sub(r"\1", line) for line in theirs
    ]


def _returned_keep_their_place(step: Step, ours: Lines, theirs: Lines) -> bool:
    if not any("x-delivery-count: l" in line for line in ours + theirs):
        return False
    left, right = (_BODY.findall("\n".join(lines)) for lines in (ours, theirs))
    # Empty bodies do not tell which message they belong to.
    return left != right or "" in left


def _is_order_of_rejected(step: Step, ours: Lines, theirs: Lines) -> bool:
    left, right = (_BODY.findall("\n".join(lines)) for lines in (ours, theirs))
    return sorted(left) == sorted(right) and any("Sb'rejected'" in line for line in ours)


def _is_delivered_expired(step: Step, ours: Lines, theirs: Lines) -> bool:
    return any("expiration=b'0'" in line for line in theirs if line not in ours)


def _counts_more(step: Step, ours: Lines, theirs: Lines) -> bool:
    return _count(theirs) > _count(ours)


def _counts_or_shows_others(step: Step, ours: Lines, theirs: Lines) -> bool:
    left, right = (_BODY.findall("\n".join(lines)) for lines in (ours, theirs))
    return left != right or _count(ours) != _count(theirs)


def _delivers_more_on_a_channel(step: Step, ours: Lines, theirs: Lines) -> bool:
    return bool(_deliveries(theirs) - _deliveries(ours))


def _deliveries(lines: Lines) -> Counter[str]:
    """How many each channel gets."""
    return Counter(line.partition(":")[0] for line in lines if " gets " in line)


def _has_delivered_more(step: Step, ours: Lines, theirs: Lines) -> bool:
    left, right = ([_RETURNS.sub("", line) for line in lines] for lines in (ours, theirs))
    return len(left) == len(right) and all(
        their in (our, _REDELIVERED.sub(r"\1True", our))
        for our, their in zip(left, right, strict=True)
    )


def _has_dropped_more(step: Step, ours: Lines, theirs: Lines) -> bool:
    return any("delivery_limit" in line for line in theirs) or _count(theirs) < _count(ours)


def _count(lines: Lines) -> int:
    """Messages that these lines show or count."""
    counted = [_DECLARED.search(line) for line in lines]
    return sum(int(match[1]) for match in counted if match) + len(_BODY.findall("\n".join(lines)))


# Traits of a sequence, beside the arguments of its queues.
QUORUM = "x-queue-type: quorum"
CHANNEL_LIMIT = "basic.qos with global"
# Messages have a time to live, of their own, of their queue or by a policy.
EXPIRES = "time to live"
# A connection ended while one of its channels had unacked messages, and another one consumers.
ENDED_TOGETHER = "channels that ended together"

INTENDED: tuple[Intended, ...] = (
    Intended("a name of a hash argument that is no text is answered with 406", _is_hash_of_no_text),
    Intended(
        "quorum queues count waiting consumers, but not channels with unacked messages",
        _counts_other_consumers,
        frozenset({QUORUM}),
        is_harmless=True,
    ),
    Intended(
        "messages that return to a quorum queue keep their place",
        _returned_keep_their_place,
        frozenset({QUORUM}),
    ),
    Intended(
        "a limit of the whole channel counts for quorum queues too",
        _delivers_more_on_a_channel,
        frozenset({QUORUM, CHANNEL_LIMIT}),
    ),
    Intended(
        "messages do not reach another channel of a connection that ends",
        _has_delivered_more,
        frozenset({ENDED_TOGETHER}),
    ),
    Intended(
        "messages that do not reach another channel of a connection that ends are not dropped",
        _has_dropped_more,
        frozenset({QUORUM, ENDED_TOGETHER, "x-delivery-limit"}),
    ),
    Intended(
        "messages of a priority queue that are rejected together stay in order",
        _is_order_of_rejected,
        frozenset({"x-max-priority"}),
    ),
    Intended(
        "an expired message of a high priority is not delivered",
        _is_delivered_expired,
        frozenset({"x-max-priority"}),
    ),
    Intended(
        "an expired message of a high priority does not count",
        _counts_more,
        frozenset({"x-max-priority", EXPIRES}),
    ),
    *(
        Intended(
            "channels of a connection that ends return their messages in another order",
            _counts_or_shows_others,
            frozenset({limit, ENDED_TOGETHER}),
        )
        for limit in ("x-max-length", "x-max-length-bytes")
    ),
)


def intended(step: Step, ours: Lines, theirs: Lines, traits: frozenset[str]) -> Intended | None:
    """Why two observations may differ; None when nothing explains it.

    `traits`: of the sequence, `traits_of` its steps among them.
    """
    for difference in INTENDED:
        if difference.needs <= traits and difference.applies(step, ours, theirs):
            return difference
    return None


def traits_of(steps: list[Step]) -> frozenset[str]:
    """The arguments that queues are declared with, `QUORUM`, `CHANNEL_LIMIT` and `EXPIRES`."""
    found: set[str] = set()
    for step in steps:
        if step.kind == "BasicQos" and step.flag("global_"):
            found.add(CHANNEL_LIMIT)
        properties = step.values.get("properties")
        arguments = step.values.get("arguments")
        policy = step.values.get("value")
        definition = policy.get("definition") if isinstance(policy, dict) else None
        for each, key in (
            (properties, "expiration"),
            (arguments, "x-message-ttl"),
            (definition, "message-ttl"),
        ):
            if isinstance(each, dict) and key in each:
                found.add(EXPIRES)
        if step.kind == "QueueDeclare" and isinstance(arguments, dict):
            found |= arguments.keys()
            if arguments.get("x-queue-type") == "quorum":
                found.add(QUORUM)
    return frozenset(found)
