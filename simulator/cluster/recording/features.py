"""The rules by which messages leave the queues of a simulated cluster, drawn for each history.

Dead letters go to a queue that is there all the time and has a lower number, so they go in no
circle.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulator.leaving.histories import (
    DROP_HEAD,
    NOWHERE,
    REJECT_PUBLISH,
    REJECT_PUBLISH_DLX,
    QueueRules,
)

# Queues that have rules: the durable ones. The first three are there all the time.
RULED_QUEUES: Final = 6
TARGETS: Final = 3
NO_RULES: Final = QueueRules()
# Times of messages and of queues (ms): within a step or two, within the history, and beyond it.
TTLS_MS: Final = (400, 4000, 900_000)
# Queues with this number or a higher one are deleted and declared again; some have x-expires.
FIRST_FLEETING: Final = 3
EXPIRES_MS: Final = (1500, 6000)
# Share of the histories whose queues have no rules.
_PLAIN_SHARE: Final = 0.3

# How a queue is disturbed in the end, alone, while it is watched
# (`simulator/cluster/endings/outage.py`).
KILL_MASTER: Final = "kill master"
KILL_MIRROR: Final = "kill mirror"
FREEZE_MASTER: Final = "freeze master"
FREEZE_MIRROR: Final = "freeze mirror"
ISOLATE_MASTER: Final = "isolate master"
ISOLATE_MIRROR: Final = "isolate mirror"
CUT: Final = "cut"
ONE_WAY_CUT: Final = "one way cut"
HANG_MASTER: Final = "hang master"
HANG_MIRROR: Final = "hang mirror"
SILENCE_MASTER: Final = "silence master"
OUTAGES: Final = (
    KILL_MASTER, KILL_MASTER, KILL_MIRROR, FREEZE_MASTER, FREEZE_MIRROR, ISOLATE_MASTER,
    ISOLATE_MIRROR, CUT, ONE_WAY_CUT, HANG_MASTER, HANG_MIRROR, SILENCE_MASTER,
)  # fmt: skip

# How a queue that is only consumed is disturbed in the end
# (`simulator/cluster/endings/partings.py`).
PARTED_MASTER: Final = "parted master"
HEAL_ETCD_FIRST: Final = "etcd heals first"
HEAL_LINKS_FIRST: Final = "links heal first"
MUTE_MASTER: Final = "mute master"
DEAF_MASTER: Final = "deaf master"
LOST_LEASE: Final = "lost lease"
ETCD_PAUSE: Final = "etcd pause"
FROZEN_MASTER: Final = "frozen master"
KILLED_MASTER: Final = "killed master"
SILENT_MASTER: Final = "silent master"
DEAD_MIRRORS: Final = "dead mirrors"
TWO_DEATHS: Final = "two deaths"
HAND_OVERS: Final = "hand overs"
QUIET_RETURN: Final = "quiet return"
PARTINGS: Final = (
    PARTED_MASTER, HEAL_ETCD_FIRST, HEAL_LINKS_FIRST, MUTE_MASTER, DEAF_MASTER, LOST_LEASE,
    ETCD_PAUSE, FROZEN_MASTER, KILLED_MASTER, SILENT_MASTER, DEAD_MIRRORS, TWO_DEATHS, HAND_OVERS,
    QUIET_RETURN,
)  # fmt: skip


def draw_rules(seed: int) -> tuple[QueueRules, ...]:
    """The rules of the queues of a history, by number; () for none."""
    rng = Random(f"rules {seed}")
    if rng.random() < _PLAIN_SHARE:
        return ()
    ttl, limit, letters, priority = (rng.choice((0.0, 0.3, 0.7)) for _ in range(4))
    drawn = [_draw(rng, number, ttl, limit, letters, priority) for number in range(RULED_QUEUES)]
    kinds = Random(f"kinds {seed}")
    quorum, single, expires = (kinds.choice((0.0, 0.0, 0.4)) for _ in range(3))
    return tuple(
        _of_a_kind(kinds, number, rules, quorum, single, expires)
        for number, rules in enumerate(drawn)
    )


def _of_a_kind(
    rng: Random, number: int, rules: QueueRules, quorum: float, single: float, expires: float
) -> QueueRules:
    """The rules with what makes a queue one of another kind."""
    is_single = rng.random() < single
    may_expire = rng.random() < expires and number >= FIRST_FLEETING
    expires_ms = rng.choice(EXPIRES_MS) if may_expire else 0
    rules = replace(rules, is_single_active=is_single, expires_ms=expires_ms)
    if rng.random() < quorum:
        # A quorum queue has neither levels nor a mode, and refuses nothing.
        return replace(rules, is_quorum=True, max_priority=0, is_lazy=False, overflow=DROP_HEAD)
    return rules


def _draw(
    rng: Random, number: int, ttl: float, limit: float, letters: float, priority: float
) -> QueueRules:
    target = rng.randrange(min(number, TARGETS)) if number else NOWHERE
    return QueueRules(
        ttl_ms=rng.choice(TTLS_MS) if rng.random() < ttl else 0,
        max_length=rng.choice((1, 3, 8)) if rng.random() < limit else 0,
        overflow=rng.choice((DROP_HEAD, DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX)),
        dead_letters=target if rng.random() < letters else NOWHERE,
        max_priority=3 if rng.random() < priority else 0,
        is_lazy=rng.random() < 0.2,
    )


def draw_outage(seed: int) -> str:
    """How a queue is disturbed at the end of a history; "" for not at all."""
    rng = Random(f"outage {seed}")
    return rng.choice(OUTAGES) if rng.random() < 0.5 else ""


def draw_parting(seed: int) -> str:
    """How a queue with consumers is disturbed at the end of a history; "" for not at all."""
    rng = Random(f"parting {seed}")
    return "" if draw_outage(seed) or rng.random() < 0.3 else rng.choice(PARTINGS)


def draw_reading(seed: int) -> str:
    """How a queue that a reader group reads is disturbed at the end; "" for not at all."""
    rng = Random(f"reading {seed}")
    return rng.choice(PARTINGS) if rng.random() < 0.4 else ""
