"""The operations of a history: plain values that a seed makes, each of which can be left out.

An operation names its subject by number (the second channel, the third oldest unacked delivery). An
operation whose number means nothing at its turn does nothing. A history therefore stays valid when
operations are left out, which is how shrinking works. Each operation has a seed of its own for
random choices while it runs.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from random import Random
from typing import Final

from simulator.models.groups import NAMED, PATTERN
from simulator.simulated.file_system import KILL, ORDERED, POWER
from simulator.simulated.node import FLUSH, LANES, Limits

Value = int | str

# Names of the values of each kind of operation, in order, as a story shows them.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "declare": ("queue", "durable", "ttl_ms", "lazy"),
    "declare_temporary": ("queue", "durable", "kind"),
    "exchange_declare": ("exchange", "type", "durable", "auto_delete", "alternate", "internal"),
    "exchange_delete": ("exchange",),
    "bind": ("exchange", "destination", "key", "arguments"),
    "unbind": ("exchange", "destination", "key", "arguments"),
    "delete": ("queue",),
    "purge": ("queue",),
    "publish": ("channel", "target", "count", "size", "persistent", "expiration_ms"),
    "publish_large": ("channel", "target", "count", "size", "persistent", "expiration_ms"),
    "publish_to": (
        "channel",
        "exchange",
        "key",
        "headers",
        "count",
        "size",
        "persistent",
        "mandatory",
    ),
    "consume": ("channel", "queue", "prefetch", "no_ack"),
    "cancel": ("channel",),
    "get": ("channel", "queue", "no_ack"),
    "ack": ("channel", "delivery", "multiple"),
    "nack": ("channel", "delivery", "multiple", "requeue"),
    "recover": ("channel",),
    "tx_commit": ("channel",),
    "tx_rollback": ("channel",),
    "close_channel": ("channel",),
    "drop_connection": ("connection",),
    "group_open": ("group", "rebinds", "is_another"),
    "group_reserve": ("group", "count", "goes_on", "wait_ms"),
    "group_fetch": ("group", "slice_size"),
    "group_ack": ("group", "count"),
    "group_late": ("group", "request"),
    "group_delete": ("group",),
    "sink_stage": (
        "sink",
        "task",
        "target",
        "count",
        "size",
        "persistent",
        "expiration_ms",
        "ends",
    ),
    "sink_finish": ("sink", "task"),
    "sink_leave": ("sink", "task"),
    "sink_commit": ("sink", "how", "fresh", "mandatory", "wait_ms"),
    "sink_abort": ("sink",),
    "sink_delete": ("sink",),
    "run": ("lane", "count"),
    "overlap": ("lane", "after", "other_lane", "count"),
    "finish": ("lane", "count"),
    "idle": (),
    "page": ("queue", "target"),
    "mode": ("queue", "lazy"),
    "tick": ("ms",),
    "crash": ("rule", "recovery_crashes", "clock_jump_ms"),
    "crash_within": ("calls", "rule"),
    "alarm": ("kind", "is_on"),
    "backup": (),
    "backup_copy": (),
    "stop": ("clock_jump_ms",),
    "fault": ("calls", "after", "error", "times"),
    "start_fault": ("calls", "after", "error", "times"),
    "disk_full": ("spare_bytes",),
    "disk_free": (),
    "flip": ("count",),
    "flip_now": ("count",),
}

# Kinds of calls that a fault picks from; empty: any call.
FAULTY_CALLS: Final = (
    "",
    "sync",
    "write",
    "create",
    "metadata",
    "metadata_sync",
    "rename",
    "unlink",
    "sync_directory",
    "read",
    "open",
)
ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE)
RULES: Final = (KILL, POWER, POWER, ORDERED)

CHANNELS: Final = 5
CONNECTIONS: Final = 3
FANOUT: Final = -1

# Number of queues; queue N is named qN.
QUEUES: Final = 4
# Number of exchanges that clients declare; exchange N is named eN.
EXCHANGES: Final = 5
# Exchanges that always exist; their numbers follow those of the declared exchanges.
STANDING_EXCHANGES: Final = (b"amq.fanout", b"amq.direct", b"amq.topic", b"amq.headers")
DEFAULT_EXCHANGE: Final = EXCHANGES + len(STANDING_EXCHANGES)
NO_ALTERNATE: Final = -1
EXCHANGE_TYPES: Final = (b"direct", b"fanout", b"topic", b"headers")
# Kinds of queues that the broker deletes by itself. AUTO_DELETE: with the last consumer.
AUTO_DELETE: Final = "auto-delete"
# EXCLUSIVE: with the connection that declared the queue.
EXCLUSIVE: Final = "exclusive"
# EXPIRING: after UNUSED_MS without use.
EXPIRING: Final = "expiring"
UNUSED_MS: Final = 400
BINDING_KEYS: Final = (
    b"",
    b"a",
    b"a.b",
    b"#",
    b"*",
    b"a.#",
    b"*.b",
    b"#.b.#",
    b"*.*",
    b"#.c",
    b"a.*.c",
    b"#.#",
)
# Each table of arguments, with names in order.
BINDING_ARGUMENTS: Final[tuple[tuple[tuple[str, object], ...], ...]] = (
    (),
    (("h", 1),),
    (("h", 1), ("k", "v")),
    (("h", 1), ("k", "v"), ("x-match", "any")),
    (("h", None), ("x-match", "all")),
    (("k", "v"), ("x-h", 1), ("x-match", "all-with-x")),
    (("k", "w"), ("x-h", 1), ("x-match", "any-with-x")),
)
ROUTING_KEYS: Final = (b"", b"a", b"b", b"a.b", b"b.a", b"a.b.c", b"c", b"a..c", b"q0", b"q1")
HEADERS: Final[tuple[dict[str, object], ...]] = (
    {}, {"h": 1}, {"h": 2, "k": "v"}, {"h": 1, "k": "v"}, {"k": "w"}, {"k": "v", "x-h": 1}, {"CC": ["q0", "a.b"]},
    {"CC": ["c", "q2"], "h": 1},
)  # fmt: skip
# Target of `page` without a limit: all messages may stay in memory.
NO_TARGET: Final = -1
HOUR_MS: Final = 3_600_000

# Tasks that stage parts of a sink's batch.
TASKS: Final = 2
# Share of histories with some messages that reach the limits of 1 MiB (a batch of the journal) and
# of 4 MiB (one read ahead or one write). Such a history takes as long as many others.
LARGE_SHARE: Final = 0.02
MEMORY_ALARM: Final = 0
DISK_ALARM: Final = 1
# How a driver commits. COMMIT: the finished logs, as a new batch.
COMMIT: Final = 0
# AGAIN: the last commit once more.
AGAIN: Final = 1
# LATE: the finished logs, with the number of the last batch.
LATE: Final = 2


def exchange_name(slot: int) -> bytes:
    """The name of exchange number `slot`."""
    if slot < EXCHANGES:
        return b"e%d" % slot
    return STANDING_EXCHANGES[slot - EXCHANGES] if slot < DEFAULT_EXCHANGE else b""


@dataclass(frozen=True)
class Operation:
    """One step of a history."""

    kind: str
    values: tuple[Value, ...]
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
        shown = [
            f"{name}={value}" for name, value in zip(FIELDS[self.kind], self.values, strict=True)
        ]
        return " ".join([self.kind, *shown])


@dataclass(frozen=True)
class History:
    """Everything that decides a simulation; equal histories always run equally."""

    seed: int
    limits: Limits
    operations: tuple[Operation, ...]


class OperationMaker:
    """Draws operations; each history has its own mixture, so that rare combinations meet."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.queues = rng.choice((1, 2, 2, 3, 4))
        self.body_sizes = rng.choice(((4, 40), (4, 300), (200, 300), (4, 1500), (240, 272)))
        self.batch = rng.choice((2, 4, 10))
        self.transient_share = rng.choice((0.0, 0.1, 0.5))
        self.lazy_share = rng.choice((0.0, 0.3, 1.0))
        self.expiring_share = rng.choice((0.0, 0.0, 0.2))
        self.channels = rng.sample(range(CHANNELS), rng.choice((2, 3, CHANNELS)))
        self.rules = rng.choice((RULES, (KILL,), (POWER,)))
        self.lanes: tuple[str, ...] = LANES
        self.groups: tuple[int, ...] = tuple(range(self.queues))
        weights = {
            "declare": 1.0, "declare_temporary": 0.0, "exchange_declare": 0.0, "exchange_delete": 0.0, "bind": 0.0,
            "unbind": 0.0, "publish_to": 0.0,
            "delete": 0.3, "purge": 0.4, "publish": 10, "consume": 2, "cancel": 0.7, "get": 2, "ack": 8,
            "nack": 2, "recover": 0.3, "tx_commit": 1.5, "tx_rollback": 0.5, "close_channel": 0.5, "drop_connection": 0.3,
            "group_open": 0.0, "group_reserve": 0.0, "group_fetch": 0.0, "group_ack": 0.0, "group_late": 0.0,
            "group_delete": 0.0,
            "sink_stage": 0.0, "sink_finish": 0.0, "sink_leave": 0.0, "sink_commit": 0.0, "sink_abort": 0.0,
            "sink_delete": 0.0,
            "run": 8, "overlap": 3, "finish": 6, "idle": 2, "page": 1.5, "mode": 0.4, "tick": 4,
            "crash": 0.8, "crash_within": 0.8, "stop": 0.3,
            "fault": 0.7, "start_fault": 0.2, "disk_full": 0.2, "disk_free": 0.3, "flip": 0.0,
            "flip_now": 0.0,
        }  # fmt: skip
        if rng.random() < 0.4:
            weights["fault"] = weights["start_fault"] = weights["disk_full"] = 0.0
        elif rng.random() < 0.15:
            weights["flip"] = 1.0
            weights["flip_now"] = rng.choice((0.0, 1.0, 3.0))
        if rng.random() < 0.3:
            weights.update(group_reserve=2.0, group_fetch=1.5, group_ack=1.5, group_delete=0.15)
            if rng.random() < 0.6:
                self.groups = rng.choice(((NAMED,), (PATTERN,), (PATTERN,), (0, NAMED, PATTERN)))
                weights.update(
                    group_open=0.4, group_late=0.2, group_reserve=3.5, delete=0.5, declare=1.5
                )
        if not weights["flip"] and rng.random() < 0.3:
            weights.update(
                sink_stage=8.0, sink_finish=1.0, sink_leave=0.2, sink_commit=6.0, sink_abort=0.15
            )
            weights.update(
                sink_delete=0.1, publish=4, consume=1.5, ack=5, run=12, finish=10, crash=1.5
            )
            # A sink's batch is written several times before it is in its queues.
            self.lanes = (FLUSH, FLUSH, FLUSH, FLUSH, *LANES)
        self.temporary_kinds: tuple[str, ...] = (AUTO_DELETE, EXCLUSIVE, EXPIRING)
        if rng.random() < (0.1 if weights["sink_stage"] else 0.35):
            weights.update(
                declare_temporary=0.6,
                exchange_declare=1.5,
                exchange_delete=0.3,
                bind=3,
                unbind=1,
                publish_to=5,
            )
            if weights["sink_stage"]:
                self.temporary_kinds = (AUTO_DELETE, EXPIRING)
        for kind in weights:
            # A kind that is missing, or drowns the others, finds bugs that an even mixture never
            # reaches.
            weights[kind] *= rng.choice((0.3, 1.0, 1.0, 1.0, 3.0)) if rng.random() < 0.5 else 1.0
        if rng.random() < LARGE_SHARE:
            weights["publish_large"] = 0.5
        self.kinds = list(weights)
        self.weights = list(weights.values())

    def beginning(self) -> list[Operation]:
        """The operations that declare the queues of a history."""
        found = [
            self._made("declare", queue, int(self.rng.random() < 0.9), self._ttl_ms(), self._lazy())
            for queue in range(self.queues)
        ]
        found.append(self._made("idle"))
        return found

    def operation(self) -> Operation:
        """Draw one operation."""
        kind = self.rng.choices(self.kinds, self.weights)[0]
        return self._made(kind, *self._values(kind))

    def _made(self, kind: str, *values: Value) -> Operation:
        return Operation(kind, values, self.rng.getrandbits(30))

    def _values(self, kind: str) -> tuple[Value, ...]:
        rng = self.rng
        channel = rng.choice(self.channels)
        queue = rng.randrange(self.queues)
        match kind:
            case "declare":
                return queue, int(rng.random() < 0.85), self._ttl_ms(), self._lazy()
            case "declare_temporary":
                kind = rng.choice(self.temporary_kinds)
                # A reader group uses a durable queue at times that the model does not know.
                return queue, int(kind != EXPIRING and rng.random() < 0.5), kind
            case "delete" | "purge":
                return (queue,)
            case "publish":
                target = FANOUT if rng.random() < 0.3 else queue
                return (
                    channel,
                    target,
                    rng.randint(1, self.batch),
                    self._size(),
                    self._persistent(),
                    self._expiry_ms(),
                )
            case "publish_large":
                size = rng.choice((300_000, 1_100_000))
                return channel, queue, rng.choice((1, 2, 4)), size, self._persistent(), 0
            case "consume":
                return channel, queue, rng.choice((0, 1, 3, 10)), int(rng.random() < 0.15)
            case "get":
                return channel, queue, int(rng.random() < 0.3)
            case "ack":
                return channel, rng.choice((0, 0, 0, 1, 5)), int(rng.random() < 0.3)
            case "nack":
                return (
                    channel,
                    rng.choice((0, 0, 1, 5)),
                    int(rng.random() < 0.3),
                    int(rng.random() < 0.8),
                )
            case "cancel" | "recover" | "tx_commit" | "tx_rollback" | "close_channel":
                return (channel,)
            case "drop_connection":
                return (rng.randrange(CONNECTIONS),)
        if kind in ("exchange_declare", "exchange_delete", "bind", "unbind", "publish_to"):
            return self._topology_values(kind)
        if kind.startswith("group_"):
            return self._group_values(kind)
        return self._sink_values(kind) if kind.startswith("sink_") else self._disk_values(kind)

    def _topology_values(self, kind: str) -> tuple[Value, ...]:
        rng = self.rng
        declared = rng.randrange(EXCHANGES)
        exchange = rng.choice((declared, declared, rng.randrange(DEFAULT_EXCHANGE)))
        match kind:
            case "exchange_declare":
                alternate = rng.choice((NO_ALTERNATE, NO_ALTERNATE, rng.randrange(EXCHANGES)))
                durable, auto_delete = int(rng.random() < 0.8), int(rng.random() < 0.3)
                return (
                    declared,
                    rng.randrange(len(EXCHANGE_TYPES)),
                    durable,
                    auto_delete,
                    alternate,
                    int(rng.random() < 0.1),
                )
            case "exchange_delete":
                return (declared,)
            case "bind" | "unbind":
                destination = rng.choice(
                    (rng.randrange(self.queues), rng.randrange(QUEUES + EXCHANGES))
                )
                # Few pairs of key and arguments, so that existing bindings are unbound too.
                key, arguments = (
                    rng.randrange(len(BINDING_KEYS)),
                    rng.randrange(len(BINDING_ARGUMENTS)),
                )
                return exchange, destination, key, rng.choice((0, arguments))
            case _:
                exchange = rng.choice((exchange, exchange, exchange, DEFAULT_EXCHANGE))
                return (
                    rng.choice(self.channels),
                    exchange,
                    rng.randrange(len(ROUTING_KEYS)),
                    rng.choice((0, rng.randrange(len(HEADERS)))),
                    rng.randint(1, self.batch),
                    self._size(),
                    self._persistent(),
                    int(rng.random() < 0.5),
                )

    def _group_values(self, kind: str) -> tuple[Value, ...]:
        rng = self.rng
        group = rng.choice(self.groups)
        match kind:
            case "group_open":
                return group, int(rng.random() < 0.7), int(rng.random() < 0.5)
            case "group_reserve":
                return (
                    group,
                    rng.choice((1, 3, 10)),
                    int(rng.random() < 0.5),
                    rng.choice((0, 0, 0, 100)),
                )
            case "group_fetch":
                return group, rng.choice((0, 0, 2, 8))
            case "group_ack":
                return group, rng.choice((1, 2, 10))
            case "group_late":
                return group, rng.randrange(3)
        return (group,)

    def _sink_values(self, kind: str) -> tuple[Value, ...]:
        rng = self.rng
        sink, task = rng.choice((0, 0, 1)), rng.randrange(TASKS)
        match kind:
            case "sink_stage":
                target = FANOUT if rng.random() < 0.3 else rng.randrange(self.queues)
                count = rng.randint(1, 2 * self.batch)
                ends = int(rng.random() < 0.7)
                return (
                    sink,
                    task,
                    target,
                    count,
                    self._size(),
                    self._persistent(),
                    self._expiry_ms(),
                    ends,
                )
            case "sink_commit":
                how = rng.choice((COMMIT,) * 10 + (AGAIN, AGAIN, LATE))
                return (
                    sink,
                    how,
                    int(rng.random() < 0.1),
                    int(rng.random() < 0.7),
                    rng.choice((0, 0, 200)),
                )
            case "sink_finish" | "sink_leave":
                return sink, task
        return (sink,)

    def _disk_values(self, kind: str) -> tuple[Value, ...]:
        rng = self.rng
        match kind:
            case "run" | "finish":
                return rng.choice(self.lanes), rng.choice((1, 1, 2, 5))
            case "overlap":
                return (
                    rng.choice(LANES),
                    rng.choice((0, 1, 2, 4, 8)),
                    rng.choice(LANES),
                    rng.choice((1, 1, 3)),
                )
            case "page":
                return rng.randrange(self.queues), rng.choice((0, 0, 1, 5, 20, NO_TARGET))
            case "mode":
                return rng.randrange(self.queues), int(rng.random() < 0.5)
            case "tick":
                return (rng.choice((1, 30, 60, 300, 3000)),)
            case "crash":
                return rng.choice(self.rules), rng.choice((0, 0, 0, 1, 2)), self._jump_ms()
            case "crash_within":
                return rng.choice((0, 1, 2, 4, 8, 16, 40)), rng.choice(self.rules)
            case "stop":
                return (self._jump_ms(),)
            case "fault" | "start_fault":
                times = rng.choice((1, 1, 2, 6))
                return rng.choice(FAULTY_CALLS), rng.choice((0, 1, 3)), rng.choice(ERRORS), times
            case "disk_full":
                return (rng.choice((0, 100, 1000)),)
            case "flip" | "flip_now":
                return (rng.choice((1, 1, 3)),)
        return ()

    def _size(self) -> int:
        return self.rng.randint(*self.body_sizes)

    def _persistent(self) -> int:
        return int(self.rng.random() >= self.transient_share)

    def _expiry_ms(self) -> int:
        return self.rng.choice((20, 200, 2000)) if self.rng.random() < self.expiring_share else 0

    def _ttl_ms(self) -> int:
        return self.rng.choice((200, 2000)) if self.rng.random() < self.expiring_share / 2 else 0

    def _lazy(self) -> int:
        return int(self.rng.random() < self.lazy_share)

    def _jump_ms(self) -> int:
        return self.rng.choice((0, 0, 0, 0, HOUR_MS, -HOUR_MS))
