"""Random sequences do the same on warren and on RabbitMQ; `make differential` runs more of them.

The sequences are the same in each run, without those in which time passes, which take seconds each.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from bench.brokers import rabbitmq_server
from tests.differential.brokers import Rabbitmq, Warren
from tests.differential.comparison import Comparison
from tests.differential.generator import Generator

SEQUENCES = 80
SEED = "everyday"


def _seeds() -> Iterator[str]:
    number = 0
    while True:
        if not Generator(f"{SEED}/{number}").is_timed:
            yield f"{SEED}/{number}"
        number += 1


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.skipif(rabbitmq_server() is None, reason="rabbitmq-server is not installed")
def test_warren_does_as_rabbitmq_does(tmp_path: Path) -> None:
    rabbitmq = Rabbitmq(tmp_path)
    try:
        comparison = Comparison(Warren(), rabbitmq)
        for seed in islice(_seeds(), SEQUENCES):
            comparison.compare(seed)
    finally:
        rabbitmq.stop()
    assert not comparison.report.differences, "\n\n".join(comparison.report.differences)


class _WithoutPolicies(Warren):
    """A broker that forgets policies at once."""

    def set_policy(self, component: str, name: str, value: dict[str, object]) -> bool:
        is_set = super().set_policy(component, name, value)
        self.clear_policy(component, name)
        return is_set


def test_a_broker_that_differs_is_found_out() -> None:
    comparison = Comparison(Warren(), _WithoutPolicies())
    seeds = islice(_seeds(), SEQUENCES)
    seed = next(seed for seed in seeds if not comparison.compare(seed))
    (story,) = comparison.report.differences
    steps = story.splitlines()
    assert steps[0].startswith(f"sequence {seed},")
    assert any("SetPolicy" in line for line in steps)
    assert len(steps) < len(Generator(seed).steps())
