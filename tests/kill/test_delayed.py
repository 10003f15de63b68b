"""SIGKILL while delayed messages wait, and while they are due.

A short version of `python -m tests.kill.long --load delayed`.
"""

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.delayed_kills import DelayedKills

KILLS = 3
SEED = 3


@pytest.mark.kill
@pytest.mark.slow
def test_killed_while_messages_wait(node: BrokerProcess) -> None:
    kills = DelayedKills(node, SEED)
    kills.run(KILLS, longest_s=0.6, kills_a_check=KILLS, aims_at_moves=False)
    kills.finish()
    # The test proves nothing unless much happened.
    for name in ("DelayedFeeder", "DueTaker", "read after starts", "still waiting"):
        assert kills.done[name] > 5 * KILLS, kills.done
