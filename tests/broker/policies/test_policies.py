"""Policies of one vhost: checks of their values, and when what they say takes effect."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.simulated.file_system import SimulatedFileSystem
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import (
    Definitions,
    PutExchange,
    PutParameter,
    PutQueue,
    PutVhost,
)
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.policies.policy import check_policy, parse_policy
from warrenmq.server.startup.vhost import open_vhost
from warrenmq.store.settings import StoreSettings
from warrenmq.wire.methods import (
    BasicGet,
    ChannelFlow,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)

# One check a line: component, value of the parameter, and the text that RabbitMQ 3.10.8, with its
# federation plug-in, refused it with ("" if it did not).
RECORDED = Path(__file__).with_name("rabbitmq_checks.jsonl")


def value(pattern: str, priority: float = 0, apply_to: str = "all", **definition: Any) -> str:
    return json.dumps(
        {
            "pattern": pattern,
            "priority": priority,
            "apply-to": apply_to,
            "definition": {key.replace("_", "-"): each for key, each in definition.items()},
        }
    )


def test_values_are_refused_in_the_words_of_rabbitmq() -> None:
    for line in RECORDED.read_text().splitlines():
        component, checked, text = json.loads(line)
        try:
            check_policy(component, "p", json.dumps(checked))
            answer = ""
        except ValueError as error:
            answer = str(error)
        assert answer == text, checked


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"ha-mode": "all", "ha-sync-mode": "manually"}, ""),
        ({"ha-mode": "all", "ha-min-sync": 2}, ""),
        ({"ha-mode": "all", "ha-min-sync": 0}, "an integer greater than 0, 0 given"),
        ({"ha-mode": "all", "ha-min-sync": True}, "an integer greater than 0, true given"),
        ({"ha-mode": "all", "ha-min-sync": "2"}, 'an integer greater than 0, <<"2">> given'),
        ({"ha-min-sync": 2}, "ha-mode must be specified"),
    ],
)
def test_keys_of_mirrors_that_rabbitmq_does_not_have(settings: dict[str, Any], error: str) -> None:
    text = json.dumps({"pattern": "", "priority": 0, "definition": settings})
    if error:
        with pytest.raises(ValueError, match=error):
            check_policy("policy", "p", text)
    else:
        check_policy("policy", "p", text)


def test_mirroring_is_in_force(side: "Side") -> None:
    """M30: the sync mode `manually` is stored and shown as `manual`."""
    side.channel.call(QueueDeclare(b"hello"))
    side.put("p", value("^hello", ha_mode="all", ha_sync_mode="manually", ha_min_sync=2))
    policies = side.vhost.policies
    (policy,) = policies.policies()
    settings = {"ha-min-sync": 2, "ha-mode": "all", "ha-sync-mode": "manual"}
    assert policy.definition == settings
    queue = side.vhost.queues[b"hello"]
    assert [(each.key, each.is_waiting) for each in policies.view_queue(queue)] == [
        ("ha-min-sync", False),
        ("ha-mode", False),
        ("ha-sync-mode", False),
    ]
    applied = policies.of_queue(queue)
    assert applied is not None and applied.mirroring == settings


class Side:
    """A broker in memory with one client."""

    def __init__(self) -> None:
        self.memory = MemoryBroker()
        self.vhost = self.memory.vhost
        self.channel: ChannelPeer = Peer(self.memory.connect()).open().channel()

    def put(self, name: str, policy: str, component: str = "policy") -> None:
        check_policy(component, name, policy)
        self.vhost.put_parameter(component, name, policy)
        self.settle()

    def settle(self) -> None:
        while self.vhost.policies.is_applying():
            self.memory.pump()

    def ready(self, queue: bytes) -> int:
        return self.vhost.queues[queue].ready_count


@pytest.fixture
def side() -> Side:
    return Side()


def test_a_time_to_live_counts_for_messages_that_come_after_the_policy(side: Side) -> None:
    side.channel.call(QueueDeclare(b"q"))
    side.channel.publish(b"q", b"before")
    side.put("p", value("q", message_ttl=500))
    side.memory.advance(1000)
    assert side.ready(b"q") == 1
    side.channel.call(BasicGet(b"q", no_ack=True))
    side.channel.publish(b"q", b"after")
    # A message keeps its time when the policy goes.
    side.vhost.delete_parameter("policy", "p")
    side.settle()
    side.channel.publish(b"q", b"later")
    assert side.ready(b"q") == 2
    side.memory.advance(1000)
    assert side.ready(b"q") == 1


def test_the_expiry_of_a_queue_starts_over_when_its_policies_change(side: Side) -> None:
    for name in (b"q", b"other"):
        side.channel.call(QueueDeclare(name))
    side.memory.advance(5000)
    side.put("p", value("^q", expires=4000))
    side.memory.advance(3000)
    assert b"q" in side.vhost.queues
    side.put("p", value("^q", priority=1, expires=4000))
    side.memory.advance(3000)
    # Neither the policy of another queue nor the same policy once more counts as a change.
    side.put("o", value("^other", expires=100_000))
    side.put("p", value("^q", priority=1, expires=4000))
    assert b"q" in side.vhost.queues
    side.memory.advance(2000)
    assert list(side.vhost.queues) == [b"other"]


def test_a_repeated_publish_takes_the_alternate_exchange_of_a_new_policy(side: Side) -> None:
    channel = side.channel
    channel.call(ExchangeDeclare(b"x", b"direct"))
    channel.call(ExchangeDeclare(b"alt", b"fanout"))
    channel.call(QueueDeclare(b"q"))
    channel.call(QueueBind(b"q", b"alt", b""))
    for expected in (0, 1, 1):
        channel.publish(b"key", b"m", exchange=b"x")
        channel.call(ChannelFlow(True))
        assert side.ready(b"q") == expected
        if expected == 0:
            side.put("p", value("^x$", apply_to="exchanges", alternate_exchange="alt"))
        else:
            side.vhost.delete_parameter("policy", "p")
            side.settle()


def test_of_equal_priorities_the_first_name_wins(side: Side) -> None:
    side.channel.call(QueueDeclare(b"q"))
    for name in ("b", "a", "c"):
        side.put(name, value("", max_length=ord(name)))
    assert side.vhost.policies.policy_of(side.vhost.queues[b"q"]) == "a"


def test_a_view_names_where_each_value_comes_from(side: Side) -> None:
    side.channel.call(
        QueueDeclare(b"q", arguments=table(**{"x-expires": 80_000, "x-queue-mode": "default"}))
    )
    side.put("p", value("", expires=90_000, message_ttl=70_000, queue_mode="lazy", max_length=9))
    side.put("o", value("", message_ttl=60_000, expires=95_000, max_length=10), "operator_policy")
    queue = side.vhost.queues[b"q"]
    assert [
        (each.key, each.value, each.source, each.policy, each.is_waiting)
        for each in side.vhost.policies.view_queue(queue)
    ] == [
        ("expires", 80_000, "argument", "", False),
        ("max-length", 9, "policy", "p", False),
        ("message-ttl", 60_000, "operator_policy", "o", False),
        ("queue-mode", "default", "argument", "", False),
    ]
    applied = side.vhost.policies.of_queue(queue)
    assert applied is not None
    assert applied.definition == {
        "expires": 90_000,
        "max-length": 9,
        "message-ttl": 60_000,
        "queue-mode": "lazy",
    }


def test_a_start_puts_policies_and_limits_in_force() -> None:
    definitions = Definitions()
    definitions.parameters = [
        PutParameter(b"/", "policy", "p", value("", message_ttl=50, alternate_exchange="alt")),
        PutParameter(b"/", "operator_policy", "o", value("", message_ttl=40)),
        PutParameter(b"other", "policy", "p", value("", message_ttl=1)),
        PutParameter(b"/", "policy", "damaged", "{}"),
        PutParameter(b"/", "vhost-limits", "limits", '{"max-queues":5}'),
    ]
    definitions.queues = [PutQueue(b"/", 1, b"q", True, False, table(**{"x-message-ttl": 45}))]
    definitions.exchanges = [PutExchange(b"/", b"x", b"fanout", False, False, b"")]
    definitions.next_queue_id = 2
    broker = Broker(Settings(), bytes, lambda: None)
    vhost, _ = open_vhost(
        broker,
        PutVhost(b"/", 1),
        SimulatedFileSystem(),
        definitions,
        StoreSettings(1 << 24),
        0,
        lambda size: b"\1" * size,
    )
    assert not vhost.policies.is_applying()
    assert vhost.queues[b"q"].settings.message_ttl_ms == 40
    assert vhost.policies.operator_policy_of(vhost.queues[b"q"]) == "o"
    assert vhost.router.exchanges[b"x"].alternate == b"alt"
    assert vhost.router.exchanges[b"amq.topic"].alternate == b"alt"
    assert vhost.limits.max_queues == 5


def test_a_redeclaration_is_compared_with_the_arguments_and_not_with_what_applies(
    side: Side,
) -> None:
    side.put("p", value("", message_ttl=50_000))
    side.channel.call(QueueDeclare(b"q"))
    side.channel.call(QueueDeclare(b"q"))
    side.channel.refused(
        QueueDeclare(b"q", arguments=table(**{"x-message-ttl": 50_000})),
        406,
        "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
        "received the value '50000' of type 'signedint' but current is none",
    )


@pytest.mark.parametrize("pattern", ["^([a-z0-9]+[._-]?)+$", "^(?!x)([a-z0-9]+[._-]?)+$"])
def test_a_policy_matches_at_once_whatever_its_pattern(pattern: str) -> None:
    policy = parse_policy("p", value(pattern, expires=10))
    assert not policy.matches(b"a" * 200 + b"!")
    assert policy.matches(b"a" * 200)


def test_a_pattern_that_is_not_supported_is_refused() -> None:
    with pytest.raises(ValueError, match=r'"not supported: a group that begins with \(\?R"'):
        check_policy("policy", "p", value("a(?R)?b", expires=10))
