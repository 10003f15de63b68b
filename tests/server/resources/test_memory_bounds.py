"""A node whose consumers do not keep up stays near its memory limit, and accepts more messages.

The cases are a few cells of `python -m bench memory`, at a low limit.
"""

from pathlib import Path

import pytest

from bench.brokers import WarrenBroker
from bench.memory import SLACK_MIB, Case
from bench.scenario import MIB

LIMIT_MIB = 160
VOLUME = 2.0


@pytest.mark.parametrize(("mode", "reader"), [("default", "never"), ("lazy", "holds")])
def test_a_consumer_that_takes_nothing_does_not_fill_the_memory(
    tmp_path: Path, mode: str, reader: str
) -> None:
    broker = WarrenBroker(tmp_path, set(), (f"vm_memory_high_watermark.absolute = {LIMIT_MIB}MiB",))
    broker.start()
    try:
        # A publisher that stays blocked runs into the time limit, with fewer messages.
        outcome = Case(LIMIT_MIB, MIB, 1, mode, reader).run(broker, VOLUME, 60.0)
    finally:
        broker.stop()
    assert outcome.published_bytes == int(LIMIT_MIB * VOLUME) * MIB
    assert outcome.highest_rss <= (LIMIT_MIB + SLACK_MIB) * MIB
