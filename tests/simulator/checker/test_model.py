"""Histories of a model broker: no complaint about a correct one, and planted bugs are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.checker.verdict import judge
from simulator.checker.violation import Rule
from tests.support.cluster.model_history import UNDONE_MS, ModelHistory

SEEDS = range(60)


@given(st.integers(0, 1 << 32))
def test_a_correct_broker_is_never_blamed(seed: int) -> None:
    verdict = judge(ModelHistory(seed).run(), UNDONE_MS)
    assert verdict.is_clean, verdict.text()


@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("loses", Rule.LOST),
        ("swaps", Rule.ORDER),
        ("forgets the flag", Rule.FLAG),
        ("flags too many", Rule.FLAG),
        ("repeats", Rule.AGAIN),
        ("settles another", Rule.SETTLED),
    ],
)
def test_a_planted_bug_is_found(bug: str, rule: Rule) -> None:
    broken = set()
    for seed in SEEDS:
        history = ModelHistory(seed, bug)
        verdict = judge(history.run(), UNDONE_MS)
        assert history.is_broken or verdict.is_clean, verdict.text()
        broken |= verdict.broken()
    assert rule in broken
