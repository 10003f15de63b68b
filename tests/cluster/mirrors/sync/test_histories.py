"""Copies end equal, however publishes, deliveries, restarts and cuts fall into a sync."""

import random

import pytest

from tests.cluster.mirrors.sync.synced_pair import Pair
from warrenmq.cluster.mirrors.sync import source as sync_source
from warrenmq.cluster.mirrors.sync import target as sync_target
from warrenmq.queues.settings import QueueSettings, QueueTraits

LAZY = QueueSettings(is_lazy=True)
LEVELS = QueueSettings(traits=QueueTraits(max_priority=5))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunks so small that a few messages fill them."""
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(sync_source, "READ_BYTES", 2000)


SEEDS = 24


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories_end_with_equal_copies(seed: int) -> None:
    choice = random.Random(seed)
    settings = [QueueSettings(), LAZY, LEVELS][seed % 3]
    durable = seed % 4 != 3
    pair = Pair(settings, durable, held_bytes=choice.choice([1500, 64 << 20]), batch_messages=7)
    may_restart = durable and settings is not LEVELS
    for step in range(250):
        match choice.randrange(24):
            case 0 | 1 | 2 | 3:
                pair.publish(
                    choice.randrange(1, 12),
                    size=choice.choice([5, 30, 300, 5000]),
                    persistent=choice.random() < 0.8 or not may_restart,
                    expiration_ms=choice.choice([-1, -1, 1_000_000]),
                    priority=choice.randrange(4) if settings is LEVELS else 0,
                )
            case 4 | 5:
                pair.take(choice.randrange(1, 8))
            case 6 | 7 if pair.out:
                pair.ack(choice.sample(pair.out, choice.randrange(1, len(pair.out) + 1)))
            case 8 if pair.out:
                some = choice.sample(pair.out, choice.randrange(1, len(pair.out) + 1))
                pair.requeue(some, is_unseen=choice.random() < 0.3)
            case 9 if choice.random() < 0.1:
                pair.queue.purge(pair.now_ms)
            case 10:
                pair.page_out()
            case 11 if not pair.is_joined:
                pair.join()
            case 12 if choice.random() < 0.3:
                if may_restart and choice.random() < 0.5:
                    pair.restart_mirror()
                else:
                    pair.reopen_copy()
            case 13 if choice.random() < 0.3 and pair.is_joined:
                pair.cut_link()
                pair.target.begin(pair.epoch, pair.now_ms)
                if pair.is_in_sync:
                    pair.source.stop()
            case 14 | 15 | 16:
                pair.deliver_ring()
            case 17 | 18:
                pair.deliver_to_mirror()
            case 19 | 20:
                pair.deliver_to_master()
            case 21:
                pair.end_turn()
                pair.clock.advance(choice.randrange(30))
            case 22:
                pair.master.commit()
            case 23:
                pair.mirror.commit()
        if step % 25 == 0:
            pair.check()
    if not pair.is_joined:
        pair.join()
    for _ in range(400):
        pair.turn(ms=50)
        if pair.target.state == sync_target.IN_SYNC and not pair.ring:
            break
    assert pair.target.state == sync_target.IN_SYNC
    for _ in range(20):
        pair.turn()
    pair.assert_equal()
