"""A plan shows what a broker lacks or has otherwise, and changes nothing.

A warren node shows everything to a user with the tag `management`. Others only show what exists.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aio_pika
import pika
import pytest

from tests.support.brokers.fixtures import FOREIGN_URI
from tests.support.brokers.node_thread import NodeThread
from tests.support.skips import does_not_apply
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import AddUser, Done, SetPermissions
from warrenmq.topology import (
    Binding,
    Change,
    DeclarationRefusedError,
    Difference,
    DirectExchange,
    FanoutExchange,
    Finding,
    Plan,
    Queue,
    TopicExchange,
    Topology,
    bind,
    declare,
    plan,
    plan_async,
)

pytestmark = pytest.mark.interop

ONLY_AMQP = "AMQP tells only whether an exchange or a queue exists"


def plan_over_pika(topology: Topology, uri: str) -> Plan:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        return plan(topology, connection)


def plan_over_a_channel_of_pika(topology: Topology, uri: str) -> Plan:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        return plan(topology, connection.channel())


def plan_over_aio_pika(topology: Topology, uri: str) -> Plan:
    async def run() -> Plan:
        async with await aio_pika.connect_robust(uri) as connection:
            return await plan_async(topology, connection)

    return asyncio.run(run())


WAYS = [plan_over_pika, plan_over_a_channel_of_pika, plan_over_aio_pika]


@pytest.fixture
def node_uri(broker_uri: str) -> str:
    """URI of a warren node."""
    if FOREIGN_URI:
        does_not_apply("another broker has no listings of the admin protocol")
    return broker_uri


def test_a_node_shows_what_differs(node_uri: str, name: str) -> None:
    there = Topology(
        TopicExchange(f"{name}-e", alternate_exchange="a"),
        Queue(f"{name}-q", message_ttl=1000, arguments={"x-comment": [1, True, {"a": None}]}),
        Binding(f"{name}-e", f"{name}-q", "k", {"a": True}),
    )
    declare(there, node_uri)
    assert plan(there, node_uri).is_done

    exchange = DirectExchange(f"{name}-e", durable=False, internal=True, delayed=True)
    queue = Queue(
        f"{name}-q", auto_delete=True, max_length=0, arguments={"x-comment": [1, 1, {"a": None}]}
    )
    new = Queue(f"{name}-new")
    binding = Binding(f"{name}-e", f"{name}-q", "k", {"a": 1})
    found = plan(Topology(exchange, queue, new, binding), node_uri)
    assert found.changes == (
        Change(
            exchange,
            Finding.DIFFERS,
            (
                Difference("type", "topic", "x-delayed-message"),
                Difference("durable", True, False),
                Difference("internal", False, True),
                Difference("alternate_exchange", "a", None),
                Difference("x-delayed-type", None, "direct"),
            ),
        ),
        Change(
            queue,
            Finding.DIFFERS,
            (
                Difference("auto_delete", False, True),
                Difference("x-comment", [1, True, {"a": None}], [1, 1, {"a": None}]),
                Difference("max_length", None, 0),
                Difference("message_ttl", 1000, None),
            ),
        ),
        Change(new, Finding.MISSING),
        Change(binding, Finding.MISSING),
    )
    assert not found.is_done
    assert str(found).splitlines()[1:] == [
        (
            f"! queue '{name}-q' differs: auto_delete is False, here True; x-comment is [1, True, "
            "{'a': None}], here [1, 1, {'a': None}]; max_length is not declared, here 0; "
            "message_ttl is 1000, here not declared"
        ),
        f"+ queue '{name}-new' missing",
        f"+ binding of queue '{name}-q' to exchange '{name}-e' with 'k' missing",
    ]
    assert plan(there, node_uri).is_done


def test_a_node_shows_exclusive_queues_and_bindings_of_exchanges(
    node_uri: str, connection: pika.BlockingConnection, name: str
) -> None:
    source, target = FanoutExchange(f"{name}-s"), FanoutExchange(f"{name}-t")
    bound = Topology(source, target, bind(target).to(source))
    declare(Topology(bound, Queue(name, exclusive=True)), connection)
    found = plan(Topology(bound, Queue(name, durable=False)), node_uri)
    assert found.of(Finding.EQUAL) == list(bound)
    (change,) = [each for each in found.changes if each.finding is Finding.DIFFERS]
    assert change.differences == (Difference("exclusive", True, False),)


@pytest.mark.parametrize("way", WAYS)
def test_amqp_shows_what_exists(
    broker_uri: str, name: str, way: Callable[[Topology, str], Plan]
) -> None:
    exchange, queue = FanoutExchange(f"{name}-e"), Queue(f"{name}-q", expires=60_000)
    missing, nameless = Queue(f"{name}-missing"), Queue()
    declare(Topology(exchange, queue), broker_uri)
    bindings = [bind(each).to(exchange) for each in (queue, missing, nameless)]
    topology = Topology(exchange, queue, missing, nameless, *bindings)
    for _ in range(2):
        found = way(topology, broker_uri)
        assert found.of(Finding.EXISTS) == [exchange, queue]
        assert found.of(Finding.MISSING) == [missing, nameless, *bindings[1:]]
        assert found.of(Finding.UNKNOWN) == bindings[:1]
    assert not found.is_done
    assert str(found).splitlines()[-1] == f"existing ones are not compared: {ONLY_AMQP}"


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_is_refused_as_a_declaration_would_be(
    broker_uri: str,
    connection: pika.BlockingConnection,
    name: str,
    way: Callable[[Topology, str], Plan],
) -> None:
    declare(Topology(Queue(name, exclusive=True)), connection)
    with pytest.raises(DeclarationRefusedError) as caught:
        way(Topology(FanoutExchange("amq.fanout"), Queue(name)), broker_uri)
    assert (caught.value.code, caught.value.declaration) == (405, Queue(name))
    assert str(caught.value).startswith(f"the broker refused queue '{name}': 405 RESOURCE_LOCKED")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path)
    yield node
    node.stop()


def test_a_user_without_the_tag_sees_what_amqp_shows(node: NodeThread) -> None:
    with AdminClient(NodeAddress(node.uri)) as client:
        client.request(AddUser(name="u", password="p"), Done)
        grant = SetPermissions(vhost="/", user="u", configure=".*", write=".*", read=".*")
        client.request(grant, Done)
    uri = node.uri.replace("guest:guest", "u:p")
    queue = Queue("q", lazy=True)
    declare(Topology(queue), uri)
    found = plan(Topology(Queue("q"), Queue("missing")), uri)
    assert [change.finding for change in found.changes] == [Finding.EXISTS, Finding.MISSING]
    assert found.not_compared_because
    assert plan(Topology(queue), node.uri).is_done
