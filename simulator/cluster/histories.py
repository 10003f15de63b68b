"""The steps of a history of a cluster, and the things that its clients use.

A step names its subject by number, and does nothing if the number means nothing at its turn. So a
history stays valid when steps are left out, which is how a failing history is shortened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from simulator.cluster.recording.features import draw_outage, draw_parting, draw_reading, draw_rules
from simulator.leaving.histories import QueueRules, Step
from simulator.simulated.file_system import KILL, ORDERED, POWER
from simulator.simulated.node import Limits
from warrenmq.cluster.decisions.placement import CLIENT_LOCAL, MIN_MASTERS, RANDOM

# The first queues are there all the time; the others come and go.
FIXED_QUEUES: Final = 3
DURABLE_QUEUES: Final = (3, 4, 5)
TRANSIENT_QUEUE: Final = 6
AUTO_DELETE_QUEUE: Final = 7
EXCLUSIVE_QUEUE: Final = 8
QUEUES: Final = 9
# x0 is there all the time, durable, bound to two of the fixed queues. The others come and go: x1
# durable and there at the beginning, x2 transient and auto-deleted.
EXCHANGES: Final = 3
EXCHANGE_TYPES: Final = (b"direct", b"fanout", b"topic")
FIXED_EXCHANGE: Final = 0
# Where queues are mirrored, this number of the fixed queues has a reader group.
READ_QUEUES: Final = 2
# Where queues are mirrored, the fixed ones are bound to it by their names.
DELAYED_EXCHANGE: Final = b"xd"
CONSUMERS: Final = 4
SINKS: Final = 2
KEYS: Final = (b"k", b"l")
POLICIES: Final = ("ha", "hb")
_PATTERNS: Final = ("", "^q[0-5]", "^q[0246]", "^q[1357]")

# Ways in which a path is cut: both sides learn it; neither side; one direction only.
RESET: Final = "reset"
SILENT: Final = "silent"
ONE_WAY: Final = "one way"
OTHER_WAY: Final = "other way"


@dataclass(frozen=True)
class ClusterHistory:
    """Everything that decides a history; equal histories always run equally."""

    seed: int
    nodes: int
    locator: str
    # The chance of a disk with work to go on, each time the cluster moves.
    disk_pace: float
    limits: Limits
    steps: tuple[Step, ...]
    # Policies that are set before the first queue is declared: name, and value as JSON.
    policies: tuple[tuple[str, str], ...] = ()
    # The rules of the durable queues, by number; () for none.
    rules: tuple[QueueRules, ...] = ()
    # How a mirrored queue is disturbed in the end (`endings/outage.py`); "": not at all.
    outage: str = ""
    # How a queue with consumers at all nodes is disturbed in the end (`endings/partings.py`); "":
    # not.
    parting: str = ""
    # How a queue with a reader group is disturbed in the end (`endings/readings.py`); "": not.
    reading: str = ""


class _Maker:
    """Draws the values of steps."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.nodes = self.rng.choice((3, 3, 4, 5))
        # A part of all histories has no faults of a kind, so that others get room.
        self.calm = self.rng.random() < 0.15
        # Policies let copies lead that are not in sync.
        self.has_unsafe = Random(f"unsafe {seed}").random() < 0.3
        # Policies refuse publishes while there is one copy in sync alone.
        self.needs_copies = Random(f"min sync {seed}").random() < 0.15

    def node(self) -> int:
        return self.rng.randrange(self.nodes)

    def queue(self) -> int:
        """A queue; those that are there all the time are more likely."""
        if self.rng.random() < 0.6:
            return self.rng.randrange(FIXED_QUEUES)
        return self.rng.randrange(QUEUES)

    def fleeting_queue(self) -> int:
        return self.rng.randrange(FIXED_QUEUES, QUEUES)

    def size(self) -> int:
        if self.rng.random() < 0.1:
            return self.rng.randint(4096, 6000)
        return self.rng.randint(4, 600)

    def other_nodes(self) -> tuple[int, int]:
        one, other = self.rng.sample(range(self.nodes), 2)
        return one, other

    def flag(self, share: float) -> int:
        return int(self.rng.random() < share)

    def consumer(self) -> int:
        return self.rng.randrange(CONSUMERS)

    def policy(self) -> tuple[str, str]:
        """The name and the value of a policy that mirrors queues."""
        copies = self.rng.choice((0, 0, 2, 2, 3))
        mode = {"ha-mode": "exactly", "ha-params": copies} if copies else {"ha-mode": "all"}
        # A manual policy leaves more copies that lack messages.
        sync = "automatic" if self.rng.random() < (0.6 if self.has_unsafe else 0.85) else "manual"
        value: dict[str, Any] = {
            "pattern": self.rng.choice(_PATTERNS),
            "apply-to": "queues",
            "priority": self.rng.randrange(2),
            "definition": {**mode, "ha-sync-mode": sync},
        }
        if self.has_unsafe:
            value["definition"]["ha-promote-on-failure"] = "always"
        if self.needs_copies and sync == "automatic":
            value["definition"]["ha-min-sync"] = 2
        return self.rng.choice(POLICIES), json.dumps(value)

    def publish(self) -> tuple[int | str, ...]:
        exchange = self.rng.choice((-1, -1, -1, -1, 0, 0, 1, 1, 2))
        key = self.queue() if exchange < 0 else self.rng.randrange(len(KEYS))
        count = self.rng.randint(1, 6)
        return (
            self.node(), exchange, key, count, self.size(), self.flag(0.8), self.flag(0.5),
        )  # fmt: skip


_Draw = Callable[[_Maker], tuple[int | str, ...]]
# The work of clients: how often each kind is done, and with which values.
_WORK: Final[dict[str, tuple[int, _Draw]]] = {
    "publish": (22, _Maker.publish),
    "tx": (3, lambda m: (m.node(), m.queue(), m.rng.randint(1, 3), m.size(), m.flag(0.8))),
    "consume": (
        9,
        lambda m: (
            m.consumer(), m.queue(), m.rng.choice((0, 1, 2, 5)), m.flag(0.08), m.flag(0.3),
        ),
    ),
    "cancel": (3, lambda m: (m.consumer(),)),
    "get": (4, lambda m: (m.consumer(), m.queue())),
    "ack": (14, lambda m: (m.consumer(), m.rng.randrange(8), m.flag(0.5))),
    "reject": (4, lambda m: (m.consumer(), m.rng.randrange(8), m.flag(0.7))),
    "sync": (5, lambda m: (m.consumer(),)),
    "move": (3, lambda m: (m.consumer(), m.node())),
    "drop": (1, lambda m: (m.node(),)),
    "declare": (7, lambda m: (m.node(), m.fleeting_queue())),
    "own": (2, lambda m: (m.consumer(),)),
    "delete": (3, lambda m: (m.node(), m.fleeting_queue())),
    "purge": (1, lambda m: (m.node(), m.queue())),
    "exchange": (3, lambda m: (m.node(), m.rng.randrange(1, EXCHANGES))),
    "exchange_delete": (1, lambda m: (m.node(), m.rng.randrange(1, EXCHANGES))),
    "bind": (6, lambda m: (m.node(), m.rng.randrange(1, EXCHANGES), m.queue(), m.flag(0.2))),
    "unbind": (4, lambda m: (m.node(), m.rng.randrange(1, EXCHANGES), m.queue(), m.flag(0.2))),
    "wait": (20, lambda m: (m.rng.choice((5, 5, 20, 50)),)),
    "long_wait": (4, lambda m: (m.rng.choice((200, 600, 1500, 4000)),)),
}  # fmt: skip
_FAULTS: Final[dict[str, tuple[int, _Draw]]] = {
    "crash": (4, lambda m: (m.node(), m.rng.choice((KILL, POWER, ORDERED)), m.flag(0.3))),
    "crash_within": (3, lambda m: (m.node(), m.rng.randrange(60), m.rng.choice((KILL, POWER)))),
    "relive": (2, lambda m: (m.node(), m.rng.choice(DURABLE_QUEUES), m.rng.choice((KILL, POWER)))),
    "strike": (
        4, lambda m: (m.node(), m.queue(), m.rng.randrange(5), m.rng.choice((KILL, POWER, ORDERED))),
    ),
    "restart": (14, lambda m: (m.node(),)),
    "cut": (
        6, lambda m: (*m.other_nodes(), m.rng.choice((RESET, SILENT, SILENT, ONE_WAY, OTHER_WAY))),
    ),
    "slow": (3, lambda m: (*m.other_nodes(), m.rng.choice((2, 30, 200)), m.rng.choice((0, 1, 20)))),
    "heal": (9, lambda m: m.other_nodes()),
    "etcd_cut": (3, lambda m: (m.rng.choice((-1, m.node(), m.node())),)),
    "etcd_heal": (6, lambda m: (m.rng.choice((-1, -1, m.node())),)),
    "etcd_loses": (3, lambda m: (m.node(), m.flag(0.5))),
    "lease": (1, lambda m: (m.node(),)),
    "compact": (1, lambda m: (m.node(),)),
    "stall": (2, lambda m: (m.node(), m.flag(0.4))),
}  # fmt: skip
# Work that only mirrored queues have, or have more often. A mirror is dropped after 3 to 8 s.
_MIRROR_WORK: Final[dict[str, tuple[int, _Draw]]] = {
    "publish": (32, _Maker.publish),
    "ack": (20, lambda m: (m.consumer(), m.rng.randrange(8), m.flag(0.5))),
    "long_wait": (5, lambda m: (m.rng.choice((200, 600, 1500, 4000, 9000)),)),
    "synchronise": (2, lambda m: (m.queue(),)),
    "cancel_sync": (1, lambda m: (m.queue(),)),
    "rebalance": (1, lambda m: (m.node(),)),
    "policy": (1, lambda m: m.policy()),
    "feed": (2, lambda m: (m.rng.randrange(FIXED_QUEUES), m.rng.choice((500, 1500, 5000)))),
    "read": (7, lambda m: (m.rng.randrange(READ_QUEUES), m.rng.choice((1, 3, 100)))),
    "read_ack": (6, lambda m: (m.rng.randrange(READ_QUEUES), m.rng.choice((1, 3, 100)))),
    "read_again": (3, lambda m: (m.rng.randrange(READ_QUEUES),)),
    "read_late": (1, lambda m: (m.rng.randrange(READ_QUEUES),)),
    "read_leave": (1, lambda m: (m.rng.randrange(READ_QUEUES),)),
    "stage": (4, lambda m: (m.rng.randrange(SINKS), m.rng.choice((1, 4, 4, 30)))),
    "delay": (2, lambda m: (m.node(), m.rng.randrange(FIXED_QUEUES), m.rng.choice((50, 2000)))),
}
_MIRROR_FAULTS: Final[dict[str, tuple[int, _Draw]]] = {
    "strike": (
        8, lambda m: (m.node(), m.queue(), m.rng.randrange(5), m.rng.choice((KILL, POWER, ORDERED))),
    ),
    "two_deaths": (
        3,
        lambda m: (
            m.rng.randrange(READ_QUEUES), m.rng.choice((KILL, POWER)), m.rng.choice((0, 300, 1000)),
            m.rng.choice((0, 100, 500, 3000)), m.flag(0.6), m.rng.choice((0, 100, 500, 3000)),
        ),
    ),
    "sink_strike": (
        4,
        lambda m: (
            m.rng.randrange(SINKS), m.rng.choice((1, 4, 30)), m.rng.choice((0, 1, 3, 10, 30)),
            m.rng.randrange(3), m.rng.choice((KILL, POWER)), m.rng.choice((0, 20, 200, 3000)),
        ),
    ),
    "part_master": (
        2,
        lambda m: (
            m.rng.randrange(READ_QUEUES), m.flag(0.8), m.flag(0.5), m.rng.choice((1000, 5000, 9000)),
            m.rng.choice((0, 1000, 5000)),
        ),
    ),
    "freeze": (5, lambda m: (m.node(), m.flag(0.5))),
    "blackout": (1, lambda m: (m.rng.choice((KILL, POWER, ORDERED)),)),
    "abandon": (2, lambda m: (m.queue(), m.rng.choice((KILL, POWER)))),
    "disk_full": (3, lambda m: (m.node(), m.rng.choice((0, 500, 5000)))),
    "disk_alarm": (3, lambda m: (m.node(), m.flag(0.5))),
    "disk_slow": (3, lambda m: (m.node(), m.rng.choice((1, 5, 20)))),
    "disk_well": (7, lambda m: (m.node(),)),
    "etcd_pause": (2, lambda m: (m.flag(0.5),)),
}  # fmt: skip
# Share of steps that are faults, in a history with faults.
_FAULT_SHARE: Final = 0.17


def make_cluster_history(seed: int) -> ClusterHistory:
    """The history of a seed."""
    return _made(_Maker(seed), _WORK, _FAULTS)


def make_mirror_history(seed: int) -> ClusterHistory:
    """The history of a seed in which policies mirror most queues."""
    maker = _Maker(seed)
    policies = (maker.policy(), maker.policy())
    history = _made(maker, _WORK | _MIRROR_WORK, _FAULTS | _MIRROR_FAULTS)
    return replace(
        history,
        policies=policies,
        rules=draw_rules(seed),
        outage=draw_outage(seed),
        parting=draw_parting(seed),
        reading=draw_reading(seed),
        limits=replace(history.limits, move_slice=Random(f"slice {seed}").choice((1, 3, 100))),
    )


def _made(
    maker: _Maker, work: dict[str, tuple[int, _Draw]], faults: dict[str, tuple[int, _Draw]]
) -> ClusterHistory:
    rng = maker.rng
    count = rng.randint(40, 140)
    steps = []
    for _ in range(count):
        is_fault = not maker.calm and rng.random() < _FAULT_SHARE
        kinds = faults if is_fault else work
        weights = [weight for weight, _draw in kinds.values()]
        kind = rng.choices(list(kinds), weights)[0]
        steps.append(Step(kind, kinds[kind][1](maker), rng.getrandbits(32)))
    limits = Limits(page_batch=rng.choice((1, 4)), journal_file_bytes=rng.choice((4096, 16384)))
    locator = rng.choice((CLIENT_LOCAL, MIN_MASTERS, RANDOM))
    return ClusterHistory(
        maker.seed, maker.nodes, locator, rng.choice((0.2, 0.5, 0.9)), limits, tuple(steps)
    )
