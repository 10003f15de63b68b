"""The steps of a history of messages that leave queues by rule, and the rules of its queues.

A step names its subject by number, and does nothing if the number means nothing at its turn. So a
history stays valid when steps are left out, which is how a failing history is shortened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from simulator.operations import ERRORS, FAULTY_CALLS
from simulator.simulated.file_system import KILL, ORDERED, POWER
from simulator.simulated.node import LANES, Limits

QUEUES: Final = 4
# Clients that consume; the publisher is a client of its own.
CONSUMERS: Final = 3

DROP_HEAD: Final = "drop-head"
REJECT_PUBLISH: Final = "reject-publish"
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"

# Where dead letters go. NOWHERE: the queue has no dead-letter exchange.
NOWHERE: Final = -1
# To the queues that FANOUT_QUEUES names.
FANOUT: Final = -2
# To an exchange that does not exist.
MISSING: Final = -3
# To the default exchange with the key that the message has.
SAME_KEY: Final = -4
FANOUT_QUEUES: Final = (1, 2)
FANOUT_EXCHANGE: Final = b"amq.fanout"
DELAYED_EXCHANGE: Final = b"delayed"

REST_MS: Final = 60


@dataclass(frozen=True)
class QueueRules:
    """The rules of one queue. Numbers of 0 mean no rule; `dead_letters` is a queue or NOWHERE..."""

    ttl_ms: int = 0
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = DROP_HEAD
    dead_letters: int = NOWHERE
    max_priority: int = 0
    is_single_active: bool = False
    is_quorum: bool = False
    delivery_limit: int = 0
    is_lazy: bool = False
    expires_ms: int = 0

    def has_limit(self) -> bool:
        """Whether the queue has a limit of messages or of bytes."""
        return self.max_length > 0 or self.max_bytes > 0

    def arguments(self) -> dict[str, object]:
        """The arguments of the queue's declaration."""
        found = self.definition("x-")
        if self.expires_ms:
            found["x-expires"] = self.expires_ms
        if self.max_priority:
            found["x-max-priority"] = self.max_priority
        if self.is_single_active:
            found["x-single-active-consumer"] = True
        if self.is_quorum:
            found["x-queue-type"] = "quorum"
        elif self.is_lazy:
            found["x-queue-mode"] = "lazy"
        return found

    def definition(self, prefix: str = "") -> dict[str, object]:
        """The rules that a policy can set as well, by name."""
        found: dict[str, object] = {}
        if self.ttl_ms:
            found["message-ttl"] = self.ttl_ms
        if self.max_length:
            found["max-length"] = self.max_length
        if self.max_bytes:
            found["max-length-bytes"] = self.max_bytes
        if self.has_limit():
            found["overflow"] = self.overflow
        if self.delivery_limit:
            found["delivery-limit"] = self.delivery_limit
        if self.dead_letters != NOWHERE:
            exchange = {FANOUT: FANOUT_EXCHANGE.decode(), MISSING: "missing"}
            found["dead-letter-exchange"] = exchange.get(self.dead_letters, "")
            if self.dead_letters >= 0:
                found["dead-letter-routing-key"] = f"q{self.dead_letters}"
        return {prefix + name: value for name, value in found.items()}


@dataclass(frozen=True)
class Step:
    """One step; `seed` is for random choices while it runs."""

    kind: str
    values: tuple[int | str, ...]
    seed: int

    def number(self, index: int) -> int:
        """The value at `index`, which must be a number."""
        value = self.values[index]
        assert isinstance(value, int)
        return value

    def text(self, index: int) -> str:
        """The value at `index`, which must be a text."""
        value = self.values[index]
        assert isinstance(value, str)
        return value

    def __str__(self) -> str:
        return " ".join([self.kind, *(str(value) for value in self.values)])


@dataclass(frozen=True)
class LeavingHistory:
    """Everything that decides a history; equal histories always run equally."""

    seed: int
    limits: Limits
    rules: tuple[QueueRules, ...]
    # Rules that a policy puts in force, on top of those of its queue.
    policies: tuple[QueueRules, ...]
    steps: tuple[Step, ...]


def make_leaving_history(seed: int) -> LeavingHistory:
    """Make the history of a seed."""
    rng = Random(f"leaving {seed}")
    maker = _Maker(rng)
    steps = tuple(maker.step() for _ in range(rng.choice((30, 60, 100, 160))))
    return LeavingHistory(seed, _limits(rng), maker.rules, maker.policies, steps)


def _limits(rng: Random) -> Limits:
    return Limits(
        journal_file_bytes=rng.choice((600, 1500, 4096)),
        content_file_bytes=rng.choice((1000, 3000, 8192)),
        embed_below=rng.choice((0, 64, 256)),
        segment_entries=rng.choice((2, 8, 16)),
        page_batch=rng.choice((1, 4)),
        dead_bytes=rng.choice((500, 3000, 1 << 20)),
        memory_bytes=rng.choice((0, 0, 0, 3000, 12000)),
    )


class _Maker:
    """Draws rules and steps; each history has its own mixture."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        # Shares of the queues with each kind of rule.
        self._ttl = rng.choice((0.0, 0.3, 0.8))
        self._limit = rng.choice((0.0, 0.3, 0.8))
        self._priority = rng.choice((0.0, 0.0, 0.5))
        self._quorum = rng.choice((0.0, 0.0, 0.4))
        self._dead_letters = rng.choice((0.4, 0.8, 1.0))
        self._transient = rng.choice((0.0, 0.0, 0.3))
        self._expiring = rng.choice((0.0, 0.3))
        self._delayed = rng.choice((0.0, 0.0, 0.5, 0.9))
        self._sizes = rng.choice(((4, 40), (4, 300), (200, 600)))
        self.rules = tuple(self._rules() for _ in range(QUEUES))
        self.policies = tuple(self._policy() for _ in range(3))
        weights = {
            "publish": 10.0, "consume": 2.0, "cancel": 0.7, "get": 4.0, "ack": 5.0, "reject": 5.0, "drop": 0.5,
            "run": 7.0, "finish": 6.0, "idle": 2.0, "tick": 4.0, "page": 1.0,
            "crash": 1.0, "crash_within": 1.0, "stop": 0.3, "policy": rng.choice((0.0, 0.0, 1.0)),
            "fault": 0.0, "disk_full": 0.0, "disk_free": 0.0,
        }  # fmt: skip
        if rng.random() < 0.3:
            weights.update(fault=0.7, disk_full=0.2, disk_free=0.3)
        if rng.random() < 0.25:
            # Without a crash nothing may be doubled.
            weights["crash"] = weights["crash_within"] = weights["stop"] = 0.0
        for kind in weights:
            weights[kind] *= rng.choice((0.3, 1.0, 1.0, 3.0))
        self._kinds, self._weights = list(weights), list(weights.values())

    def _rules(self) -> QueueRules:
        rng = self.rng
        is_quorum = rng.random() < self._quorum
        rules = self._policy()
        return replace(
            rules,
            overflow=DROP_HEAD if is_quorum else rules.overflow,
            max_priority=3 if not is_quorum and rng.random() < self._priority else 0,
            is_single_active=rng.random() < 0.15,
            is_quorum=is_quorum,
            delivery_limit=rng.choice((0, 1, 2)) if is_quorum else 0,
            is_lazy=rng.random() < 0.2,
        )

    def _policy(self) -> QueueRules:
        rng = self.rng
        has_limit = rng.random() < self._limit
        return QueueRules(
            ttl_ms=rng.choice((20, 200, 2000)) if rng.random() < self._ttl else 0,
            max_length=rng.choice((1, 2, 5)) if has_limit else 0,
            max_bytes=rng.choice((0, 0, 400)) if has_limit else 0,
            overflow=rng.choice((DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX)),
            dead_letters=self._target() if rng.random() < self._dead_letters else NOWHERE,
        )

    def _target(self) -> int:
        rng = self.rng
        if rng.random() < 0.75:
            return rng.randrange(QUEUES)
        return rng.choice((FANOUT, FANOUT, MISSING, SAME_KEY))

    def step(self) -> Step:
        """Draw one step."""
        kind = self.rng.choices(self._kinds, self._weights)[0]
        return Step(kind, self._values(kind), self.rng.getrandbits(30))

    def _values(self, kind: str) -> tuple[int | str, ...]:
        rng = self.rng
        client, queue = rng.randrange(CONSUMERS), rng.randrange(QUEUES)
        match kind:
            case "publish":
                is_delayed = rng.random() < self._delayed
                return (
                    queue,
                    rng.randint(1, 4),
                    rng.randint(*self._sizes),
                    int(rng.random() >= self._transient),
                    rng.choice((20, 200, 2000)) if rng.random() < self._expiring else 0,
                    rng.randrange(5),
                    rng.choice((20, 300, 3000, 300_000)) if is_delayed else 0,
                )
            case "consume":
                return client, queue, rng.choice((0, 1, 3)), int(rng.random() < 0.2)
            case "get":
                return client, queue, int(rng.random() < 0.3)
            case "ack" | "reject":
                return client, rng.randrange(4), int(rng.random() < 0.35)
            case "cancel" | "drop":
                return (client,)
            case "run" | "finish":
                return rng.choice(LANES), rng.choice((1, 1, 2, 5))
            case "tick":
                return (rng.choice((1, 30, 60, 300, 3000)),)
            case "page":
                return queue, rng.choice((0, 0, 1, -1))
            case "crash":
                return (rng.choice((KILL, POWER, ORDERED)),)
            case "crash_within":
                return rng.choice((0, 1, 2, 4, 8, 16)), rng.choice((KILL, POWER, ORDERED))
            case "fault":
                times = rng.choice((1, 1, 2, 6))
                return rng.choice(FAULTY_CALLS), rng.choice((0, 1, 3)), rng.choice(ERRORS), times
            case "disk_full":
                return (rng.choice((0, 100, 1000)),)
            case "policy":
                return queue, rng.randrange(len(self.policies) + 1)
        return ()
