"""Policies by chance: in RabbitMQ and in warren, the same policies apply with the same settings."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.brokers import RabbitmqBroker, rabbitmq_server
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.policies.policy import check_policy
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.wire.methods import QueuePurge

ROUNDS = 6
POLICIES = 8
# Readings of RabbitMQ's state (about a second each) until it equals warren's.
READS_MAX = 10
# Times that nothing reaches while the test runs (ms).
TIMES = (10_000_000, 10_000_001, 10_000_002, 10_000_003)
WORDS = ("", "a", "b", "-1", "order")
PATTERNS = (
    "", "^a", "b$", "-1", "order", "^(?!order)", "[ab]-\\d", "amq\\.(topic|fanout)", "^$", "X",
)  # fmt: skip
LIMITS: dict[str, tuple[Any, ...]] = {
    "message-ttl": TIMES,
    "expires": TIMES,
    "max-length": (5, 6, 7),
    "max-length-bytes": (500, 600),
    "delivery-limit": (1, 2),
}
OTHERS: dict[str, tuple[Any, ...]] = {
    "alternate-exchange": ("alt-1", "alt-2", "none"),
    "overflow": ("drop-head", "reject-publish"),
    "dead-letter-exchange": ("dlx",),
    "queue-version": (1, 2),
}
ALTERNATES = (b"alt-1", b"alt-2", b"alt-3")
# Reads the policies of a round and puts them instead of the old ones.
PUT = """
{ok, Text} = file:read_file("ROUND.json"),
[Users, Operators] = rabbit_json:decode(Text),
V = <<"/">>,
Names = fun(L) -> [proplists:get_value(name, P) || P <- L] end,
[ok = rabbit_policy:delete(V, N, <<"t">>) || N <- Names(rabbit_policy:list(V))],
[ok = rabbit_policy:delete_op(V, N, <<"t">>) || N <- Names(rabbit_policy:list_op(V))],
Put = fun(Component, [Name, Value]) ->
    #{<<"definition">> := Definition} = Value,
    Pairs = maps:to_list(Value#{<<"definition">> := maps:to_list(Definition)}),
    ok = rabbit_runtime_parameters:set_any(V, Component, Name, Pairs, <<"t">>)
end,
[Put(<<"policy">>, P) || P <- Users],
[Put(<<"operator_policy">>, P) || P <- Operators].
"""
# Writes what applies now.
READ = """
V = <<"/">>,
Number = fun(undefined) -> -1; (N) -> N end,
Name = fun(N) when is_atom(N) -> <<>>; (N) -> N end,
Queues = [begin
    [{_, Policy}, {_, Operator}, {_, Definition}, {_, Status}] = rabbit_amqqueue:info(
        Q, [policy, operator_policy, effective_policy_definition, backing_queue_status]),
    State = element(4, sys:get_state(amqqueue:get_pid(Q))),
    [element(4, amqqueue:get_name(Q)), Name(Policy), Name(Operator),
     maps:from_list(Definition), Number(element(14, State)), Number(element(8, State)),
     proplists:get_value(mode, Status)]
end || Q <- rabbit_amqqueue:list(V)],
Exchanges = [begin
    [{_, Resource}, {_, Policy}] = rabbit_exchange:info(X, [name, policy]),
    [element(4, Resource), Name(Policy)]
end || X <- rabbit_exchange:list(V)],
ok = file:write_file("ROUND.out", rabbit_json:encode([Queues, Exchanges])).
"""

Applied = dict[str, tuple[Any, ...]]


def queues(rng: random.Random) -> dict[str, dict[str, Any]]:
    """Arguments of queues by name."""
    found: dict[str, dict[str, Any]] = {}
    for number in range(40):
        name = f"{rng.choice(WORDS)}{rng.choice(WORDS)}{rng.choice(WORDS)}.{number}"
        arguments: dict[str, Any] = {}
        if rng.random() < 0.4:
            arguments["x-message-ttl"] = rng.choice(TIMES)
        if rng.random() < 0.4:
            arguments["x-expires"] = rng.choice(TIMES)
        if rng.random() < 0.4:
            arguments["x-queue-mode"] = rng.choice(("default", "lazy"))
        found[name] = arguments
    return found


def exchanges(rng: random.Random) -> dict[str, dict[str, Any]]:
    """Arguments of exchanges by name."""
    found: dict[str, dict[str, Any]] = {}
    for number in range(12):
        name = f"{rng.choice(WORDS)}{rng.choice(WORDS)}.x{number}"
        found[name] = {"alternate-exchange": "alt-3"} if rng.random() < 0.3 else {}
    return found


def policies(rng: random.Random, is_operator: bool) -> list[list[Any]]:
    """Names and values of policies; no two have the same priority."""
    found = []
    for number in range(POLICIES):
        definition = {
            key: rng.choice(values)
            for key, values in LIMITS.items()
            if rng.random() < (0.15 if key == "delivery-limit" else 0.4)
        }
        if is_operator:
            definition["max-length"] = 6
        else:
            # A queue of RabbitMQ keeps the mode of a policy that is gone: each policy has one.
            definition["queue-mode"] = rng.choice(("default", "lazy"))
            definition |= {
                key: rng.choice(values) for key, values in OTHERS.items() if rng.random() < 0.5
            }
        value = {
            "pattern": rng.choice(PATTERNS),
            "priority": number + rng.choice((0, 0.5)),
            "apply-to": rng.choice(("queues", "exchanges", "all")),
            "definition": definition,
        }
        found.append([f"p-{rng.randrange(12)}-{number}", value])
    return found


def declare(peer: Peer, rng: random.Random) -> None:
    channel = peer.channel()
    for name, arguments in queues(rng).items():
        channel.declare(name.encode(), arguments=table(**arguments))
    for name, arguments in exchanges(rng).items():
        channel.exchange(name.encode(), b"direct", arguments=table(**arguments))
    for alternate in ALTERNATES:
        channel.exchange(alternate, b"fanout")
        channel.declare(b"of-" + alternate)
        channel.bind(b"of-" + alternate, alternate)


def alternates(peer: Peer, names: list[str]) -> dict[str, list[int]]:
    """How many messages the queue of each alternate exchange gets of one to each exchange."""
    channel = peer.channel()
    found = {}
    for name in names:
        # RabbitMQ keeps the queues as short as their policies say.
        for alternate in ALTERNATES:
            channel.call(QueuePurge(b"of-" + alternate))
        channel.publish(b"no such key", b"m", exchange=name.encode())
        found[name] = [channel.count(b"of-" + alternate) for alternate in ALTERNATES]
    return found


class Rabbitmq:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = RabbitmqBroker(directory, set())
        self.broker.start()

    def peer(self) -> Peer:
        return Peer(SocketLink("127.0.0.1", self.broker.port), True).open()

    def put(self, users: list[list[Any]], operators: list[list[Any]]) -> None:
        path = self.directory / "round"
        path.with_suffix(".json").write_text(json.dumps([users, operators]))
        self.broker.control("eval", PUT.replace("ROUND", str(path)))

    def read(self) -> tuple[Applied, Applied]:
        path = self.directory / "round"
        self.broker.control("eval", READ.replace("ROUND", str(path)))
        queues, exchanges = json.loads(path.with_suffix(".out").read_text())
        return (
            {name: tuple(rest) for name, *rest in queues},
            {name: tuple(rest) for name, *rest in exchanges},
        )


class Warren:
    def __init__(self) -> None:
        self.memory = MemoryBroker()
        self.vhost = self.memory.vhost

    def peer(self) -> Peer:
        return Peer(self.memory.connect()).open()

    def put(self, users: list[list[Any]], operators: list[list[Any]]) -> None:
        policies = self.vhost.policies
        for policy in policies.policies():
            self.vhost.delete_parameter("policy", policy.name)
        for policy in policies.operator_policies():
            self.vhost.delete_parameter("operator_policy", policy.name)
        for component, values in (("policy", users), ("operator_policy", operators)):
            for name, value in values:
                check_policy(component, name, json.dumps(value))
                self.vhost.put_parameter(component, name, json.dumps(value))
        while policies.is_applying():
            self.memory.pump()

    def read(self) -> tuple[Applied, Applied]:
        policies = self.vhost.policies
        queues: Applied = {}
        for queue in self.vhost.queues.values():
            applied = policies.of_queue(queue)
            queues[queue.name.decode()] = (
                policies.policy_of(queue) or "",
                policies.operator_policy_of(queue) or "",
                applied.definition if applied else {},
                queue.settings.message_ttl_ms,
                queue.settings.expires_ms,
                "lazy" if queue.settings.is_lazy else "default",
            )
        exchanges: Applied = {}
        for exchange in self.vhost.router.exchanges.values():
            applied = policies.of_exchange(exchange)
            exchanges[exchange.name.decode()] = ((applied and applied.policy_name()) or "",)
        return queues, exchanges


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbitmq]:
    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    broker = Rabbitmq(tmp_path_factory.mktemp("rabbitmq-policies"))
    try:
        yield broker
    finally:
        broker.broker.stop()


def test_both_brokers_let_the_same_policies_apply(rabbitmq: Rabbitmq) -> None:
    rng = random.Random(15)
    warren = Warren()
    peers = [rabbitmq.peer(), warren.peer()]
    for peer in peers:
        declare(peer, random.Random(3))
    names = ["", "amq.topic", "amq.fanout", *exchanges_of(warren)]
    settings = set()
    for _ in range(ROUNDS):
        users, operators = policies(rng, False), policies(rng, True)
        rabbitmq.put(users, operators)
        warren.put(users, operators)
        ours = warren.read()
        # RabbitMQ updates its queues after it has answered.
        for _ in range(READS_MAX):
            theirs = rabbitmq.read()
            forget_modes(warren, theirs[0], ours[0])
            if theirs == ours:
                break
        assert ours[0] == theirs[0]
        assert ours[1] == theirs[1]
        assert alternates(peers[1], names) == alternates(peers[0], names)
        settings |= {applied[3:] for applied in ours[0].values()}
    # Chance makes no dull sets of policies.
    assert len(settings) > 30
    assert any(applied[0] == NO_LIMIT for applied in settings)
    for peer in peers:
        peer.close()


def exchanges_of(warren: Warren) -> list[str]:
    return [
        name.decode()
        for name in warren.vhost.router.exchanges
        if not name.startswith((b"amq.", b"alt-")) and name
    ]


def forget_modes(warren: Warren, theirs: Applied, ours: Applied) -> None:
    """Drop the modes of queues that nothing gives one: in RabbitMQ, that of an old policy stays."""
    for name, applied in ours.items():
        declared = warren.vhost.queues[name.encode()].definition.arguments
        if not applied[0] and b"x-queue-mode" not in declared:
            theirs[name], ours[name] = theirs[name][:5], applied[:5]
