"""Histories of one node: what a seed makes of operations and of limits.

Rare parts (backups, alarms, deep queues, scaled limits) have random sources of their own, so that a
change to one of them leaves the other operations of all histories as they are.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulator.operations import (
    DISK_ALARM,
    MEMORY_ALARM,
    History,
    Operation,
    OperationMaker,
    Value,
)
from simulator.simulated.node import Limits
from warrenmq.broker.vhost.sinks.stage import MOVE_SLICE_MESSAGES
from warrenmq.store.model.queue_index import REWRITE_MIN_BYTES
from warrenmq.store.settings import DEAD_TAIL_BYTES

# Share of histories with backups of the running node: each backup starts one more node.
BACKUP_SHARE: Final = 0.15
# Share of histories in which queues get so deep that journal files stay as files of contents, and
# in which clients then settle a part of the messages.
DEEP_SHARE: Final = 0.3
# Share of the histories with deep queues, and without sinks, in which the disk flips bits or is
# full for a while.
DAMAGED_SHARE: Final = 0.4
# Share of histories in which memory or disk alarms begin and end.
ALARM_SHARE: Final = 0.25
# Share of histories whose megabyte limits are scaled down, each with a chance of one half.
SCALED_SHARE: Final = 0.4
SCALED_LIMITS: Final[dict[str, tuple[int, ...]]] = {
    "buffer_bytes": (1, 300, 2000),
    "group_bytes": (1, 300, 2000),
    "behind_bytes": (0, 300, 2000),
    "dead_bytes": (1, 500, 3000),
    "stop_bytes": (0, 300, 2000),
    "store_stop_bytes": (0, 300, 2000),
    "load_bytes": (1, 300, 2000),
    "ahead_bytes": (1, 300, 2000),
    "ahead_bytes_max": (1, 300, 2000),
    "kept_bytes_max": (0, 300),
    "release_bytes": (1, 300),
    "deep_bytes_max": (1, 300, 2000),
}
ALARM_LIMITS: Final = ("kept_bytes_max", "release_bytes")


def make_history(seed: int) -> History:
    """Make the history of a seed."""
    rng = Random(seed)
    maker = OperationMaker(rng)
    operations = maker.beginning()
    for _ in range(rng.choice((40, 100, 150, 220))):
        operations.append(maker.operation())
    _insert_backups(operations, Random(f"backups of {seed}"))
    _insert_alarms(operations, Random(f"alarms of {seed}"))
    _insert_deep_queues(operations, maker, Random(f"deep queues of {seed}"))
    limits = _scale_down(_limits(rng), Random(f"limits of {seed}"))
    return History(seed, limits, tuple(operations))


def _insert_backups(operations: list[Operation], rng: Random) -> None:
    if rng.random() >= BACKUP_SHARE:
        return
    for _ in range(rng.choice((1, 2, 3))):
        place = rng.randrange(1, len(operations) + 1)
        operations.insert(place, Operation("backup", (), rng.getrandbits(30)))
        for _ in range(rng.choice((0, 2, 4))):
            # Ticks give time for checkpoints, which are rare otherwise and which delete unpinned
            # files.
            place += rng.choice((1, 3, 10))
            operations.insert(place, Operation("tick", (3000,), rng.getrandbits(30)))
            operations.insert(place + 1, Operation("idle", (), rng.getrandbits(30)))
        place += rng.choice((1, 10, 30))
        operations.insert(place, Operation("backup_copy", (), rng.getrandbits(30)))


def _insert_alarms(operations: list[Operation], rng: Random) -> None:
    if rng.random() >= ALARM_SHARE:
        return
    for _ in range(rng.choice((1, 2, 4))):
        kind = rng.choice((MEMORY_ALARM, MEMORY_ALARM, DISK_ALARM))
        # Alarms may overlap, and an alarm may return before all clients have resumed.
        place = rng.randrange(1, len(operations) + 1)
        operations.insert(place, Operation("alarm", (kind, 1), rng.getrandbits(30)))
        place += rng.choice((1, 5, 20, 60))
        operations.insert(place, Operation("alarm", (kind, 0), rng.getrandbits(30)))


def _insert_deep_queues(operations: list[Operation], maker: OperationMaker, rng: Random) -> None:
    """Fill queues, let checkpoints pass, and settle a part of the messages, one to three times."""
    if rng.random() >= DEEP_SHARE:
        return
    for _ in range(rng.choice((1, 2, 3))):
        place = rng.randrange(1, len(operations) + 1)
        rest: list[tuple[str, tuple[Value, ...]]] = [("tick", (3000,)), ("idle", ())]
        added: list[tuple[str, tuple[Value, ...]]] = []
        for queue in rng.sample(range(maker.queues), rng.randint(1, maker.queues)):
            added.append(("mode", (queue, 1)))
            added.append(("consume", (rng.choice(maker.channels), queue, 0, 0)))
        for _ in range(rng.choice((2, 4, 8))):
            channel, queue = rng.choice(maker.channels), rng.randrange(maker.queues)
            count, size = rng.choice((4, 8, 16)), rng.choice((100, 250))
            added += [("publish", (channel, queue, count, size, 1, 0)), ("idle", ())]
        added += rest * rng.choice((1, 3))
        for _ in range(rng.choice((4, 16, 40))):
            delivery = rng.choice((0, 1, 5, 15))
            added.append(("ack", (rng.choice(maker.channels), delivery, 0)))
        added += rest * rng.choice((2, 5))
        operations[place:place] = [
            Operation(kind, values, rng.getrandbits(30)) for kind, values in added
        ]
    # The oracle cannot judge the staged messages of sinks once bits have flipped.
    if not any(operation.kind.startswith("sink_") for operation in operations):
        _insert_damage(operations, rng)


def _insert_damage(operations: list[Operation], rng: Random) -> None:
    if rng.random() >= DAMAGED_SHARE:
        return
    for _ in range(rng.choice((1, 2, 4))):
        place = rng.randrange(1, len(operations) + 1)
        kind = rng.choice(("flip", "flip_now", "flip_now", "disk_full"))
        value = rng.choice((0, 100, 1000)) if kind == "disk_full" else rng.choice((1, 1, 3))
        operations.insert(place, Operation(kind, (value,), rng.getrandbits(30)))
        if kind == "disk_full":
            place += rng.choice((5, 20, 60))
            operations.insert(place, Operation("disk_free", (), rng.getrandbits(30)))


def _limits(rng: Random) -> Limits:
    return Limits(
        journal_file_bytes=rng.choice((600, 1500, 4096)),
        content_file_bytes=rng.choice((1000, 3000, 8192)),
        embed_below=rng.choice((0, 64, 256, 256)),
        segment_entries=rng.choice((2, 8, 8, 16)),
        page_batch=rng.choice((1, 4, 4)),
        rewrite_min_bytes=rng.choice((REWRITE_MIN_BYTES, 0, 200)),
        dead_tail_bytes=rng.choice((DEAD_TAIL_BYTES, 0, 200)),
        move_slice=rng.choice((MOVE_SLICE_MESSAGES, 1, 2, 5)),
        memory_bytes=rng.choice((0, 0, 0, 0, 3000, 12000)),
    )


def _scale_down(limits: Limits, rng: Random) -> Limits:
    """Scale limits of megabytes down to hundreds of bytes, in a share of the histories."""
    scaled: dict[str, int] = {}
    is_scaled = rng.random() < SCALED_SHARE
    for name, values in SCALED_LIMITS.items():
        # Alarms are rare, so their limits are scaled down in every history.
        if (is_scaled or name in ALARM_LIMITS) and rng.random() < 0.5:
            scaled[name] = rng.choice(values)
    return replace(limits, **scaled)
