"""Ten thousand hostile connections: the broker goes on serving, and its memory is flat."""

import asyncio
import time

import pytest

from tests.hostile.strangers import MANNERS, visit
from tests.support.watched_broker import MIB, WatchedBroker, WellBehaved

WARM_UP = 1_500
COUNT = 10_000
AT_ONCE = 300
# What is left over from a wave of strangers when it has gone: the allocator's fragments.
FLAT = 8 * MIB


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_strangers(broker: WatchedBroker) -> None:
    node = broker.node
    broker.check_service()
    descriptors = broker.descriptors()
    asyncio.run(visit(node.host, node.port, WARM_UP, AT_ONCE, 0))
    before = broker.settled_rss(descriptors)
    client = WellBehaved(broker)
    client.start()
    started = time.monotonic()
    done = asyncio.run(visit(node.host, node.port, COUNT, AT_ONCE, 1_000_000))
    seconds = time.monotonic() - started
    client.stop()
    after = broker.settled_rss(descriptors)
    assert sum(done.values()) == COUNT
    assert len(done) == len(MANNERS)
    print(
        f"{COUNT} connections in {seconds:.0f} s; memory {before / MIB:.1f} -> {after / MIB:.1f} MiB, "
        f"peak {client.peak / MIB:.1f}; a round trip took {client.slowest * 1000:.0f} ms at most of {client.rounds}"
    )
    assert after - before < FLAT
    assert client.peak - before < 100 * MIB
    assert client.rounds > 100
    assert client.slowest < 3
