"""SIGKILL under a mixed load: a short version of `python -m tests.kill.long`."""

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.mixed_kills import MixedKills
from warrenmq.build import build_name

KILLS = 10 if build_name() == "compiled" else 4
SEED = 4


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_under_mixed_load(node: BrokerProcess) -> None:
    kills = MixedKills(node, SEED)
    kills.run(KILLS)
    reached = kills.reached()
    kills.finish()
    # The test proves nothing unless much happened.
    for worker in ("Feeder", "Taker"):
        for kind in ("Default", "Lazy", "Fan", "Bulk"):
            assert kills.done[kind + worker] > 5 * KILLS, kills.done
    for worker in ("Purger", "Cycler", "Transactor", "Expirer", "Volatile"):
        assert kills.done[worker] > KILLS, kills.done
    assert reached["journal files"] > KILLS
    assert reached["content files"] > KILLS
