"""The blocking client reads addresses, reports refusals, and rejects peers that are no node."""

import contextlib
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.one_queue_group import end_of, one_queue
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import nobody
from tests.support.spark.blocks import read_block
from warrenmq.admin.client.client import (
    REPLY_TIMEOUT_S,
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.requests import (
    PROTOCOL_HEADER,
    Ack,
    Acked,
    DescribeQueue,
    Fetch,
    Fetched,
    GroupList,
    GroupOpened,
    ListGroups,
    LoggedIn,
    OpenGroup,
    QueueDescription,
    Reserve,
    Reserved,
    encode_frame,
)
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("amqp://", ("localhost", 5672, "guest", "guest", "/")),
        ("amqp://h", ("h", 5672, "guest", "guest", "/")),
        ("amqp://h/", ("h", 5672, "guest", "guest", "/")),
        ("amqp://u:p%40ss@h:1/%2F", ("h", 1, "u", "p@ss", "/")),
        ("amqp://u@[::1]:1/a%2Fb", ("::1", 1, "u", "guest", "a/b")),
        ("amqps://h/v?verify=verify_none", ("h", 5671, "guest", "guest", "v")),
    ],
)
def test_address_is_read_as_other_clients_read_it(uri: str, expected: tuple[object, ...]) -> None:
    """A URI is read with percent-encoding, defaults and IPv6 hosts."""
    address = NodeAddress(uri)
    assert (address.host, address.port, address.user, address.password, address.vhost) == expected
    assert NodeAddress(f"amqp://{address.where}").port == address.port


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("http://u:geheim@h", "begin with amqp://"),
        ("amqp:u:geheim@h", "begin with amqp://"),
        ("u:geheim@h", "begin with amqp://"),
        ("amqp://u:geheim@[::1", "percent-encoded"),
        ("amqp://u:gehe[im@h", "percent-encoded"),
        ("amqp://u:geheim\u2100@h", "percent-encoded"),
        ("amqp://u:geheim@[h]", "percent-encoded"),
        ("amqp://u:ge/heim@h", "port is not a number"),
        ("amqp://u:geheim@h:65536", "port is not a number"),
        ("amqp://u:geheim@a..b", "host 'a..b'"),
        ("amqp://u:geheim@" + "a" * 64, "host 'a"),
        ("amqp://u:geheim@h/#v", "parameters"),
        ("amqp://u:geheim@h/?verify=verify_none", "parameters"),
        ("amqps://u@h/v?geheim=1", "may have the parameters cacertfile, "),
        ("amqps://u:geheim@h/v?verify=no", "verify_peer or verify_none"),
        ("amqps://u:geheim@h/v?keyfile=k", "keyfile needs certfile"),
    ],
)
def test_what_is_no_address_is_said_so_without_the_password(uri: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        NodeAddress(uri)
    assert "geh" not in str(caught.value) and not isinstance(caught.value, UnicodeError)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0


def test_calls_on_a_real_node(broker: BrokerProcess) -> None:
    """Over a socket: a reply, a refusal after which the connection is usable, and a long poll."""
    import pika

    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        connection.channel().queue_declare("calls", durable=True)
        with AdminClient(NodeAddress(broker.uri), "a test") as client:
            described = client.request(DescribeQueue(b"calls"), QueueDescription)
            assert (described.ready, described.durable) == (0, True)
            with pytest.raises(AdminRefusedError, match="no queue 'nope' in vhost '/'"):
                client.request(DescribeQueue(b"nope"), QueueDescription)
            group = one_queue(client.request(OpenGroup("calls", [b"calls"]), GroupOpened), "calls")
            request = group.reserve(0, 10, wait_ms=100)
            assert end_of(client.request(request, Reserved, 0.1)) == 0
            (status,) = client.request(ListGroups(), GroupList).groups
            assert "(a test)" in status.opener


def test_no_reply_is_taken_for_that_to_another_request(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupted wait a client is unusable: the late reply belongs to the old request."""

    def interrupted(self: AdminClient) -> None:
        raise KeyboardInterrupt

    with AdminClient(NodeAddress(broker.uri)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(AdminClient, "_read_reply", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.request(ListGroups(), GroupList)
        with pytest.raises(NodeUnreachableError):
            client.request(ListGroups(), GroupList)


def test_large_reserve_is_committed_without_outside_help(broker: BrokerProcess) -> None:
    """A reserve of more than one turn finishes although no other event wakes the node's loop."""
    import pika

    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("large", durable=True)
        for _ in range(5000):
            channel.basic_publish("", "large", b"x")
        assert channel.queue_declare("large", passive=True).method.message_count == 5000
        with AdminClient(NodeAddress(broker.uri)) as client:
            group = one_queue(client.request(OpenGroup("large", [b"large"]), GroupOpened), "large")
            assert end_of(client.request(group.reserve(0), Reserved)) == 5001


def test_reserve_waits_for_what_a_consumer_has(broker: BrokerProcess) -> None:
    """A reserve takes no message behind an unacked one, and takes all after its requeue.

    The consumer is a real channel.
    """
    import pika

    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("shared", durable=True)
        for number in range(3):
            channel.basic_publish("", "shared", b"%d" % number)
        method, _, _ = channel.basic_get("shared")
        with AdminClient(NodeAddress(broker.uri)) as client:
            group = one_queue(
                client.request(OpenGroup("shared", [b"shared"]), GroupOpened), "shared"
            )
            assert end_of(client.request(group.reserve(0, 10, wait_ms=100), Reserved, 0.1)) == 0
            channel.basic_nack(method.delivery_tag, requeue=True)
            assert end_of(client.request(group.reserve(0, 10, wait_ms=10_000), Reserved, 10)) == 4


def test_ranges_of_several_queues_outlive_a_killed_broker(tmp_path: Path) -> None:
    """A killed broker keeps the epoch, the ranges, the acks, and a queue that joined by pattern."""
    import pika

    broker = BrokerProcess(tmp_path)
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("k1", "k2"):
            channel.queue_declare(name, durable=True)
        with AdminClient(NodeAddress(broker.uri)) as client:
            group = client.request(OpenGroup("kill", pattern="k[0-9]"), GroupOpened)
            channel.queue_declare("k3", durable=True)
            for name, count in (("k1", 10), ("k2", 20), ("k3", 30)):
                for number in range(count):
                    # The range contains transient messages as well.
                    properties = pika.BasicProperties(delivery_mode=1 + number % 2)
                    channel.basic_publish("", name, b"%d" % number, properties)
            reserved = client.request(Reserve("kill", group.epoch, {}, 1000, 1 << 20), Reserved)
            first = reserved.members[0].incarnation
            client.request(Ack("kill", group.epoch, {first: 6}), Acked)
    broker.kill()
    broker.start()
    with AdminClient(NodeAddress(broker.uri)) as client:
        found = {}
        for part in reserved.members:
            start = 6 if part.incarnation == first else 0
            request = Fetch("kill", group.epoch, part.incarnation, start, part.end, 1000, 1 << 20)
            block = client.request(request, Fetched).block
            found[part.queue] = [message.body for message in read_block(block)]
        assert found == {
            name: [b"%d" % number for number in range(skipped, count)]
            for name, skipped, count in ((b"k1", 5, 10), (b"k2", 0, 20), (b"k3", 0, 30))
        }
    assert broker.stop() == 0


def test_refused_login_names_no_password(broker: BrokerProcess) -> None:
    """The error for a wrong password or an unknown vhost does not show the password."""
    for uri in (
        f"amqp://guest:geheim@127.0.0.1:{broker.port}",
        f"amqp://127.0.0.1:{broker.port}/nope",
    ):
        with pytest.raises(AdminRefusedError) as caught:
            AdminClient(NodeAddress(uri))
        assert caught.value.code == ACCESS_REFUSED
        assert "geheim" not in str(caught.value)


def test_errors_travel_between_processes() -> None:
    """A refusal keeps its code and text when it is pickled, as workers do with errors."""
    error = pickle.loads(pickle.dumps(AdminRefusedError("fenced", "taken over")))
    assert (error.code, str(error)) == ("fenced", "taken over")


def answer_with(data: bytes) -> NodeAddress:
    """Start a peer that accepts once, answers `data`, and closes; return its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        # The client may close before it has read all data.
        with accepted, listener, contextlib.suppress(OSError):
            accepted.recv(len(PROTOCOL_HEADER))
            accepted.sendall(data)
            accepted.shutdown(socket.SHUT_WR)
            while accepted.recv(65536):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return NodeAddress(f"amqp://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "closed"),
        (b"AMQP\x00\x00\x09\x01", "AMQP broker of another kind"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak"),
        (b"\x00\x00\x00\x02\xff\xff", "does not speak"),
        (b"\x00\x00\x00\x10\x81", "closed"),
        (bytes(encode_frame(GroupList([]))), "GroupList, not LoggedIn"),
        (bytes(encode_frame(LoggedIn("1")))[:-1], "closed"),
    ],
)
def test_peer_that_is_no_node_is_unreachable(data: bytes, text: str) -> None:
    """Every peer that is no node gives NodeUnreachableError, whatever it answers."""
    with pytest.raises(NodeUnreachableError, match=text):
        AdminClient(answer_with(data))


def test_who_does_not_answer_in_time_is_said_to() -> None:
    """A node that does not answer in time gives NodeUnreachableError, which names the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def serve() -> None:
            accepted.append(listener.accept()[0])
            accepted[0].sendall(encode_frame(LoggedIn("1")))

        threading.Thread(target=serve, daemon=True).start()
        client = AdminClient(NodeAddress(f"amqp://127.0.0.1:{listener.getsockname()[1]}"))
        with pytest.raises(
            NodeUnreachableError, match=r"127\.0\.0\.1:\d+ did not answer within 0\.1 s"
        ):
            client.request(ListGroups(), GroupList, 0.1 - REPLY_TIMEOUT_S)
        accepted[0].close()


def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    """A port without a listener gives NodeUnreachableError."""
    with nobody() as port, pytest.raises(NodeUnreachableError, match="no connection to"):
        AdminClient(NodeAddress(f"amqp://127.0.0.1:{port}"))
