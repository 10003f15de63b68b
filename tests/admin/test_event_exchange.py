"""Events come as messages to durable queues at `amq.rabbitmq.event`, like RabbitMQ's."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.admin.protocol.control import (
    AddUser,
    ControlRequest,
    Done,
    SetPermissions,
    SetUserTags,
    SetVhostLimits,
)
from warrenmq.admin.protocol.watching import KeepEvents
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, PRECONDITION


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    running = NodeThread(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


@pytest.fixture
def channel(node: NodeThread) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        yield connection.channel()


def ask(node: NodeThread, *requests: ControlRequest, user: str = "guest") -> None:
    address = NodeAddress(node.uri.replace("guest:guest", f"{user}:{user}"))
    with AdminClient(address) as client:
        for request in requests:
            client.request(request, Done)


def keep(queue: str, *events: str, messages: tuple[str, ...] = ()) -> KeepEvents:
    patterns = [pattern.encode() for pattern in events]
    return KeepEvents("/", queue.encode(), patterns, [key.encode() for key in messages])


def events_until(
    channel: BlockingChannel, queue: str, last: str
) -> list[tuple[str, dict[str, Any]]]:
    """The events in `queue` up to the first one called `last`: name and fields."""
    found: list[tuple[str, dict[str, Any]]] = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):
        assert method is not None, f"{last} does not come after {found}"
        assert (body, properties.delivery_mode) == (b"", 2)
        assert method.exchange == "amq.rabbitmq.event"
        found.append((method.routing_key, properties.headers))
        if method.routing_key == last:
            break
    channel.cancel()
    return found


def test_a_queue_takes_the_events_whose_names_match(
    node: NodeThread, channel: BlockingChannel
) -> None:
    """Declaring it again changes nothing; the exchange goes with its last queue."""
    ask(node, keep("some", "queue.*", "checkpoint.#"), keep("some", "queue.*", "checkpoint.#"))
    channel.queue_declare("made", durable=True)
    channel.exchange_declare("unseen")
    channel.queue_delete("made")
    found = events_until(channel, "some", "queue.deleted")
    named = [(name, fields["name"]) for name, fields in found if name.startswith("queue.")]
    assert named == [
        ("queue.created", "some"),
        ("queue.created", "made"),
        ("queue.deleted", "made"),
    ]
    fields = found[-1][1]
    assert (fields["vhost"], fields["user_who_performed_action"]) == ("/", "guest")
    assert fields["node"] == node.node.broker.settings.node_name
    assert fields["timestamp_in_ms"] >= found[0][1]["timestamp_in_ms"]
    node.call(node.node.broker.vhosts[b"/"].store.checkpoints.want)
    (checkpoint,) = events_until(channel, "some", "checkpoint.completed")
    assert checkpoint[1]["generation"] >= 1
    channel.queue_delete("some")
    with pytest.raises(ChannelClosedByBroker, match="no exchange"):
        channel.exchange_declare("amq.rabbitmq.event", passive=True)


def test_events_of_all_vhosts_come_to_each_queue(
    node: NodeThread, channel: BlockingChannel
) -> None:
    ask(node, keep("one", "user.created"), keep("other", "user.#", messages=("publish.#",)))
    ask(node, AddUser(name="seen", password="p"))
    for queue in ("one", "other"):
        ((name, fields),) = events_until(channel, queue, "user.created")
        assert (name, fields["name"]) == ("user.created", "seen")
    for queue in ("one", "other"):
        channel.queue_delete(queue)


def refusal(node: NodeThread, request: KeepEvents, user: str = "guest") -> tuple[str, str]:
    with pytest.raises(AdminRefusedError) as error:
        ask(node, request, user=user)
    return error.value.code, error.value.text


def test_who_may_not_read_events_gets_none(node: NodeThread, channel: BlockingChannel) -> None:
    """The tag, and the rights that declaring and binding the queue take."""
    ask(
        node,
        AddUser(name="low", password="low"),
        SetPermissions(vhost="/", user="low", configure="mine", write="mine", read="mine"),
    )
    no_tag = "the operation is for users with the tag monitoring"
    assert refusal(node, keep("mine", "#"), "low") == (ACCESS_REFUSED, no_tag)
    ask(node, SetUserTags(name="low", tags=["monitoring"]))
    for queue, what in (("other", "queue 'other'"), ("mine", "exchange 'amq.rabbitmq.event'")):
        code, text = refusal(node, keep(queue, "#"), "low")
        assert code == ACCESS_REFUSED and what in text
    ask(
        node,
        SetPermissions(
            vhost="/", user="low", configure="mine", write="mine", read="mine|amq.rabbitmq.event"
        ),
    )
    ask(node, keep("mine", "#"), user="low")
    assert refusal(node, keep("mine", "user.#"), "low")[0] == PRECONDITION
    channel.queue_declare("brief", exclusive=True)
    assert refusal(node, keep("brief", "#"))[0] == PRECONDITION
    ask(node, SetVhostLimits(vhost="/", definition='{"max-queues": 2}'))
    assert refusal(node, keep("third", "#")) == (
        PRECONDITION,
        "vhost '/' may have no more queues",
    )
    ask(node, SetVhostLimits(vhost="/", definition="{}"))
    channel.queue_delete("mine")
