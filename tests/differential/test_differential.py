"""Random sequences do the same on warren and on RabbitMQ; `make differential` runs more of them.

The sequences are the same in each run, without those in which time passes, which take seconds each.
"""

from collections.abc import Iterator
from itertools import islice

import pytest

from bench.brokers import rabbitmq_server
from tests.differential.brokers import Rabbitmq, Warren
from tests.differential.comparison import Comparison
from tests.differential.generator import Generator
from tests.differential.steps import Step, step

SEQUENCES = 80
SEED = "everyday"


def _seeds() -> Iterator[str]:
    number = 0
    while True:
        if not Generator(f"{SEED}/{number}").is_timed:
            yield f"{SEED}/{number}"
        number += 1


@pytest.fixture(scope="module")
def with_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    rabbitmq = Rabbitmq(tmp_path_factory.mktemp("rabbitmq"))
    yield Comparison(Warren(), rabbitmq)
    rabbitmq.stop()


@pytest.mark.interop
@pytest.mark.slow
def test_warren_does_as_rabbitmq_does(with_rabbitmq: Comparison) -> None:
    for seed in islice(_seeds(), SEQUENCES):
        with_rabbitmq.compare(seed)
    differences = with_rabbitmq.report.differences
    assert not differences, "\n\n".join(differences)


@pytest.mark.interop
@pytest.mark.slow
def test_a_sequence_finds_nothing_of_the_one_before(with_rabbitmq: Comparison) -> None:
    """Not even a binding between exchanges that nobody can delete."""
    bind = step("ExchangeBind", 1, destination="amq.topic", source="amq.topic", routing_key="*")
    policy: dict[str, object] = {
        "pattern": "^amq", "definition": {"alternate-exchange": "amq.fanout"},
        "priority": 1, "apply-to": "exchanges",
    }  # fmt: skip
    steps = [
        step("QueueDeclare", 1, queue="q1"),
        step("QueueBind", 1, queue="q1", exchange="amq.fanout"),
        step("SetPolicy", component="policy", name="p1", value=policy),
        step("Publish", 1, exchange="amq.topic", key="a", bodies=["m1"]),
        step("Drain", 1, queue="q1"),
    ]
    assert with_rabbitmq.run([bind], 0) is None
    assert with_rabbitmq.run(steps, 0) is None


def _declare(**arguments: object) -> Step:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return step("QueueDeclare", 1, queue="q1", durable=True, arguments=named)


PUBLISH = step("Publish", 4, key="q1", bodies=["m1"])
CHANNEL_LIMIT = step("BasicQos", 1, prefetch_count=1, global_=True)
TWO_CONSUMERS = [step("BasicConsume", channel, queue="q1", consumer_tag="t1") for channel in (1, 2)]
# A connection exception.
END = step("BasicConsume", 1, queue="q1", consumer_tag="t1")


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (
            [_declare(queue_type="quorum"), TWO_CONSUMERS[0], CHANNEL_LIMIT, PUBLISH, PUBLISH],
            "a limit of the whole channel counts for quorum queues too",
        ),
        (
            [
                _declare(single_active_consumer=True),
                step("BasicQos", 1, prefetch_count=1),
                *TWO_CONSUMERS,
                PUBLISH,
                PUBLISH,
                END,
            ],
            "messages do not reach another channel of a connection that ends",
        ),
        (
            [_declare(queue_type="quorum"), *TWO_CONSUMERS, PUBLISH, END],
            "messages do not reach another channel of a connection that ends",
        ),
        (
            [_declare(queue_type="quorum", delivery_limit=1), *TWO_CONSUMERS, PUBLISH, END],
            "messages that do not reach another channel of a connection that ends are not dropped",
        ),
    ],
)
def test_an_intended_difference(with_rabbitmq: Comparison, steps: list[Step], reason: str) -> None:
    difference = with_rabbitmq.run(steps, 0)
    assert difference is not None
    assert difference.reason == reason, str(difference)


@pytest.mark.interop
@pytest.mark.slow
def test_a_burst_one_by_one_leaves_nothing_to_chance(with_rabbitmq: Comparison) -> None:
    """Dead letters of one queue reach another one between the messages of a burst, or after it."""
    steps = [
        _declare(message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="q2"),
        step("QueueDeclare", 1, queue="q2"),
        step("QueueBind", 1, queue="q1", exchange="amq.fanout"),
        step("QueueBind", 1, queue="q2", exchange="amq.fanout"),
        step("Publish", 1, exchange="amq.fanout", bodies=[f"m{number}" for number in range(9)]),
    ]
    assert with_rabbitmq.run(steps, 0, one_by_one=True) is None


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
