"""SIGKILL while messages expire, are rejected or have no room, and become dead letters.

A short version of `python -m tests.kill.long --load dead-letters`.
"""

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.letter_kills import LetterKills
from tests.support.kills.letter_load import HOMES

KILLS = 3
SEED = 2


@pytest.mark.kill
@pytest.mark.slow
def test_killed_while_messages_die(node: BrokerProcess) -> None:
    kills = LetterKills(node, SEED)
    kills.run(KILLS, longest_s=0.5)
    kills.finish()
    # The test proves nothing unless much happened.
    for home in HOMES:
        assert kills.done[f"dead letters of {home.decode()}"] > KILLS, kills.done
    for worker in ("LetterFeeder", "Judge", "Retrier", "Undertaker"):
        assert kills.done[worker] > 5 * KILLS, kills.done
