"""SIGKILL while messages expire, are rejected or have no room, and become dead letters.

A short version of `python -m tests.kill.long --load dead-letters`.
"""

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.letter_kills import LetterKills
from tests.support.kills.letter_load import HOMES

KILLS = 3
KILLS_MAX = 30
SEED = 2


@pytest.mark.kill
@pytest.mark.slow
def test_killed_while_messages_die(node: BrokerProcess) -> None:
    kills = LetterKills(node, SEED)
    kills.run(KILLS, longest_s=0.5)
    # The test proves nothing unless much happened, which takes a slow machine more kills.
    while not has_died_everywhere(kills) and kills.done["kills"] < KILLS_MAX:
        kills.run(1)
    kills.finish()
    assert has_died_everywhere(kills), kills.done
    for worker in ("LetterFeeder", "Judge", "Retrier", "Undertaker"):
        assert kills.done[worker] > 5 * KILLS, kills.done


def has_died_everywhere(kills: LetterKills) -> bool:
    """Whether the checks after the kills have found messages that died in each queue."""
    return all(kills.done[f"dead letters of {home.decode()}"] > KILLS for home in HOMES)
