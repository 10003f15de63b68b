"""Sessions hear of what happens in the node; nobody else pays for it."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from tests.support.awaiting import eventually
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, LocalAddress
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.admin.events.queue import BYTES_MAX, EVENTS_MAX, EventQueue
from warrenmq.admin.events.stream import EventStream
from warrenmq.admin.protocol.control import (
    AddUser,
    AddVhost,
    ChangePassword,
    ClearGlobalParameter,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    ControlRequest,
    DeleteUser,
    DeleteVhost,
    Done,
    SetGlobalParameter,
    SetMemoryLimit,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    SetUserLimits,
    SetUserTags,
    SetVhostLimits,
    SetVhostTags,
)
from warrenmq.admin.protocol.watching import EVENT_NAMES, Events, NextEvents, WatchEvents
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.settings import Settings

WAIT_MS = 10_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    running = NodeThread(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


def local_client(node: NodeThread) -> AdminClient:
    return AdminClient(LocalAddress(read_control_file(Path(node.node.config.data_dir))))


def watch(client: AdminClient, *names: str) -> None:
    client.request(WatchEvents(names=list(names or EVENT_NAMES)), Done)


def events_until(client: AdminClient, last: str) -> list[dict[str, Any]]:
    """The events up to the first one called `last`."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["event"] != last:
        lines = client.request(NextEvents(wait_ms=WAIT_MS), Events).lines
        assert lines, f"{last} does not come after {found}"
        found += [json.loads(line) for line in lines]
    return found


def connect(node: NodeThread, password: str = "guest") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("guest", password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", node.port, credentials=credentials)
    )


def test_events_of_a_client(node: NodeThread) -> None:
    """RabbitMQ tells of the same things in the same order."""
    with local_client(node) as client:
        watch(client)
        connection = connect(node)
        channel = connection.channel()
        channel.exchange_declare("x", "topic", auto_delete=True)
        channel.queue_declare("q", durable=True, arguments={"x-expires": 60000})
        channel.queue_bind("q", "x", "k.#", {"a": 1})
        channel.basic_consume("q", lambda *_: None, consumer_tag="tag", auto_ack=True)
        channel.queue_delete("q")
        channel.queue_declare("mine", exclusive=True)
        connection.close()
        found = events_until(client, "connection.closed")
    assert [each["event"] for each in found] == [
        "user.authentication.success", "connection.created", "channel.created",
        "exchange.created", "queue.created", "binding.created", "consumer.created",
        "binding.deleted", "exchange.deleted", "consumer.deleted", "queue.deleted",
        "queue.created", "channel.closed", "queue.deleted", "connection.closed",
    ]  # fmt: skip
    by_name = {each["event"]: each for each in reversed(found)}
    assert by_name["user.authentication.success"]["name"] == "guest"
    created = by_name["connection.created"]
    assert (created["user"], created["vhost"], created["peer_host"]) == ("guest", "/", "127.0.0.1")
    assert by_name["channel.created"]["connection"] == created["pid"]
    assert by_name["connection.closed"]["pid"] == created["pid"]
    stamp = by_name["queue.created"].pop("timestamp_in_ms")
    assert stamp >= created["connected_at"]
    assert by_name["queue.created"] == {
        "event": "queue.created", "user_who_performed_action": "guest", "exclusive": False,
        "owner_pid": "", "arguments": {"x-expires": 60000}, "auto_delete": False, "durable": True,
        "name": "q", "vhost": "/",
    }  # fmt: skip
    assert by_name["binding.created"]["arguments"] == {"a": 1}
    # Nobody has asked for the end of a binding whose queue is deleted.
    assert by_name["binding.deleted"]["user_who_performed_action"] == "rmq-internal"
    consumer = by_name["consumer.created"]
    assert (consumer["consumer_tag"], consumer["ack_required"]) == ("tag", False)


def test_a_refused_login_is_an_event_with_its_reason(node: NodeThread) -> None:
    with local_client(node) as client:
        watch(client, "user.authentication.failure", "user.authentication.success")
        with pytest.raises(AMQPError):
            connect(node, "wrong")
        (event,) = events_until(client, "user.authentication.failure")
    assert (event["name"], event["error"]) == ("guest", "user 'guest' - invalid credentials")


POLICY = SetPolicy(vhost="v", name="p", pattern="^x", definition='{"max-length": 5}')
CHANGES: list[tuple[ControlRequest, list[str]]] = [
    (AddUser(name="u", password="p"), ["user.created"]),
    (SetUserTags(name="u", tags=["management"]), ["user.tags.set"]),
    (ChangePassword(name="u", password="q"), ["user.password.changed"]),
    (ChangePassword(name="u", password=None), ["user.password.cleared"]),
    (SetUserLimits(name="u", max_channels=5), ["user.limits.set"]),
    (SetUserLimits(name="u", max_channels=-1), ["user.limits.cleared"]),
    (AddVhost(name="v", description="text"), ["vhost.created"]),
    (SetVhostTags(name="v", tags=["a"]), ["vhost.tags.set"]),
    (SetVhostLimits(vhost="v", definition='{"max-queues": 7}'), ["parameter.set", "vhost.limits.set"]),
    (SetVhostLimits(vhost="v", definition="{}"), ["parameter.cleared", "vhost.limits.cleared"]),
    (SetPermissions(vhost="v", user="u", configure="a", write="b", read="c"), ["permission.created"]),
    (ClearPermissions(vhost="v", user="u"), ["permission.deleted"]),
    (
        SetTopicPermissions(vhost="v", user="u", exchange="amq.topic", write="a", read="b"),
        ["topic.permission.created"],
    ),
    (ClearTopicPermissions(vhost="v", user="u"), ["topic.permission.deleted"]),
    (POLICY, ["policy.set"]),
    (ClearPolicy(vhost="v", name="p"), ["policy.cleared"]),
    (
        SetPolicy(
            vhost="v", name="o", pattern="", definition='{"expires": 9}', kind="operator_policy"
        ),
        ["parameter.set", "policy.set"],
    ),
    (
        ClearPolicy(vhost="v", name="o", kind="operator_policy"),
        ["parameter.cleared", "operator.policy.cleared"],
    ),
    (SetGlobalParameter(name="g", value='"x"'), ["parameter.set"]),
    (ClearGlobalParameter(name="g"), ["parameter.cleared"]),
    (DeleteVhost(name="v"), ["vhost.deleted"]),
    (DeleteUser(name="u"), ["user.deleted"]),
    (SetMemoryLimit(absolute=1), ["alarm.set"]),
    (SetMemoryLimit(relative=0.9), ["alarm.cleared"]),
]  # fmt: skip


def test_each_change_of_a_definition_is_an_event(node: NodeThread) -> None:
    eventually(lambda: node.node.broker.alarms.memory_used_bytes > 0, "a measurement", 0.01)
    found = []
    with local_client(node) as client:
        watch(client)
        for request, names in CHANGES:
            client.request(request, Done)
            events = events_until(client, names[-1])
            assert [each["event"] for each in events] == names
            found += events
    by_name = {each["event"]: each for each in reversed(found)}
    assert by_name["policy.set"]["definition"] == {"max-length": 5}
    assert by_name["vhost.limits.set"]["max-queues"] == 7
    assert by_name["permission.created"]["read"] == "c"
    assert by_name["vhost.created"]["description"] == "text"
    assert by_name["alarm.set"]["source"] == "memory"
    assert by_name["user.deleted"]["user_who_performed_action"] == "rmq-cli"
    assert {each["event"] for each in found} | CLIENT_EVENTS | STORE_EVENTS == set(EVENT_NAMES)


CLIENT_EVENTS = {
    "binding.created", "binding.deleted", "channel.closed", "channel.created", "connection.closed",
    "connection.created", "consumer.created", "consumer.deleted", "exchange.created",
    "exchange.deleted", "queue.created", "queue.deleted", "user.authentication.failure",
    "user.authentication.success",
}  # fmt: skip
# Events of stores and of mirrored queues: tests/admin/test_event_exchange.py and
# tests/cluster/mirrors/test_group_events.py have them.
STORE_EVENTS = {
    "checkpoint.completed", "mirror.added", "mirror.promoted", "mirror.removed",
    "mirror.synchronised", "mirror.unsynchronised",
}  # fmt: skip


def test_each_session_hears_of_the_events_that_it_watches(node: NodeThread) -> None:
    with local_client(node) as one, local_client(node) as other:
        watch(one, "user.created")
        watch(other, "user.deleted")
        one.request(AddUser(name="seen", password="p"), Done)
        other.request(DeleteUser(name="seen"), Done)
        assert [each["event"] for each in events_until(one, "user.created")] == ["user.created"]
        assert [each["event"] for each in events_until(other, "user.deleted")] == ["user.deleted"]
        # The wait of a request for events ends without one, too.
        assert one.request(NextEvents(wait_ms=1), Events).lines == []


def test_a_broker_without_exchanges_has_a_listener_only_while_somebody_watches() -> None:
    broker = Broker(Settings(), secrets.token_bytes, lambda: None)
    stream = EventStream(broker)
    queue = EventQueue(frozenset(), lambda: None)
    listeners = []
    for change in (stream.open, stream.close):
        change(queue)
        listeners.append((broker.events is None, broker.alarms.events is None))
    assert listeners == [(False, False), (True, True)]


@pytest.mark.parametrize(("line", "kept"), [("x" * 10, EVENTS_MAX), ("x" * 2**20, BYTES_MAX >> 20)])
def test_a_slow_listener_is_told_how_many_events_it_has_lost(line: str, kept: int) -> None:
    woken = []
    queue = EventQueue(frozenset(), lambda: woken.append(True))
    for _ in range(kept + 7):
        queue.add(line, 5)
    assert len(woken) == 1
    taken: list[str] = []
    while lines := queue.take():
        taken += lines
        if len(taken) == len(lines):
            # There is room again: what comes now comes behind the gap.
            queue.add("later", 6)
    lost = json.dumps(
        {"event": "events.lost", "count": 7, "timestamp_in_ms": 5}, separators=(",", ":")
    )
    assert taken == [line] * kept + [lost, "later"]
