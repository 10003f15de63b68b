"""Logins, rights and limits of connections, and how they meet changes while they are open."""

import logging

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, ConnectionClosedError, Peer
from tests.support.brokers.memory_broker import GUEST, MemoryBroker
from warrenmq.broker.connection.peer_certificate import PeerCertificate
from warrenmq.broker.definitions.login_guard import FREE_FAILURES, WAIT_MAX_MS
from warrenmq.broker.definitions.metadata import (
    NO_LIMIT,
    Change,
    DeletePermission,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    PutPermission,
    PutTopicPermission,
    PutUser,
)
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicConsume,
    BasicGet,
    BasicPublish,
    ChannelOpen,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from warrenmq.wire.properties import Properties

CAPABILITIES = table(capabilities={"authentication_failure_close": True})
FOREIGN_ID = Properties(user_id=b"somebody").encode()
PUBLISH = BasicPublish()
REFUSED = "in vhost '/' refused for user 'app'"


class Node:
    """A broker in memory with the user app, which may do everything."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.memory = MemoryBroker(settings)
        self.apply(user(), PutPermission(b"/", b"app", ".*", ".*", ".*"))

    def apply(self, *changes: Change) -> None:
        for change in changes:
            self.memory.broker.access.apply(change)

    def open(self, name: bytes = b"app") -> Peer:
        return Peer(self.memory.connect()).open(user=name)

    def channel(self) -> ChannelPeer:
        return self.open().channel()

    def refusal(self, name: bytes = b"app") -> str:
        """The code and text that refuse a connection of the user."""
        with pytest.raises(ConnectionClosedError) as refused:
            self.open(name)
        return str(refused.value)

    def greeted(self, certificate_name: bytes = b"", tls: str = "") -> Peer:
        """A peer with connection.start, after a TLS handshake if `tls`."""
        link = self.memory.connect()
        now_ms = self.memory.now_ms
        certificate = PeerCertificate(certificate_name, "", "", "")
        link.connection = self.memory.broker.connect("test", True, now_ms, certificate, tls)
        link.connection.shell = link
        return Peer(link)


def user(tags: tuple[str, ...] = (), connections: int = -1, channels: int = -1) -> PutUser:
    return PutUser(b"app", GUEST.password_hash, GUEST.hashing, list(tags), connections, channels)


@pytest.fixture
def node() -> Node:
    return Node()


# -- changed rights ----------------------------------------------------------------------------


def test_a_revoked_right_stops_the_next_publish_on_a_cached_route(node: Node) -> None:
    channel = node.channel()
    channel.declare(b"q")
    channel.publish_each(b"q", b"1", b"2")
    node.apply(PutPermission(b"/", b"app", ".*", "^$", ".*"))
    channel.publish(b"q", b"3")
    channel.closed_with(403, f"access to exchange 'amq.default' {REFUSED}", PUBLISH)
    channel = channel.peer.channel()
    assert channel.drain(b"q") == [b"1", b"2"]
    node.apply(PutPermission(b"/", b"app", ".*", ".*", ".*"))
    channel.publish(b"q", b"4")
    assert channel.drain(b"q") == [b"4"]


def test_a_topic_permission_stops_the_next_publish_on_a_cached_route(node: Node) -> None:
    channel = node.channel()
    channel.declare(b"q")
    channel.bind(b"q", b"amq.topic", b"#")
    topics = PutTopicPermission(b"/", b"app", b"amq.topic", "^{username}[.]", "")
    for change, keys in (
        (topics, [b"app.1"]),
        (DeleteTopicPermission(b"/", b"app", b"amq.topic"), [b"app.2", b"other"]),
        (PutTopicPermission(b"/", b"app", b"amq.direct", "", ""), [b"app.3", b"other"]),
        (topics, [b"app.4"]),
    ):
        node.apply(change)
        for key in keys:
            channel.publish(key, key, exchange=b"amq.topic")
        assert channel.drain(b"q") == keys
    # The keys in CC are not checked, as in RabbitMQ.
    copied = Properties(headers=table(CC=["other"])).encode()
    channel.publish(b"app.5", properties=copied, exchange=b"amq.topic")
    assert channel.drain(b"q") == [b""]
    channel.publish(b"other", exchange=b"amq.topic")
    text = "access to topic 'other' in exchange 'amq.topic' in vhost '/' refused for user 'app'"
    channel.closed_with(403, text, PUBLISH)


def test_a_consumer_keeps_getting_messages_without_the_right(node: Node) -> None:
    """As in RabbitMQ, a right is checked when the consumer begins."""
    channel = node.channel()
    channel.declare(b"q")
    channel.consume(b"q", no_ack=True)
    node.apply(DeletePermission(b"/", b"app"))
    publisher = node.open(b"guest").channel()
    publisher.publish(b"q", b"late")
    assert channel.bodies(1) == [b"late"]
    channel.refused(BasicConsume(b"q"), 403, f"access to queue 'q' {REFUSED}")


def definitions_of(vhost: Vhost) -> tuple[set[bytes], dict[bytes, int]]:
    """Names of the queues, and of the exchanges with the number of their bindings."""
    bindings = {name: len(each.outgoing) for name, each in vhost.router.exchanges.items()}
    return set(vhost.queues), bindings


RIGHTS_OF: tuple[tuple[Method, str, str], ...] = (
    (QueueDeclare(b"new"), "wr", "queue 'new'"),
    (QueueDelete(b"q"), "wr", "queue 'q'"),
    (QueueDeclare(b"new", arguments=table(**{"x-dead-letter-exchange": "x"})), "cr", "exchange 'x'"),
    (QueueDeclare(b"new", arguments=table(**{"x-dead-letter-exchange": "x"})), "cw", "queue 'new'"),
    (ExchangeDeclare(b"new", b"fanout"), "wr", "exchange 'new'"),
    (ExchangeDelete(b"x"), "wr", "exchange 'x'"),
    (ExchangeDeclare(b"new", b"fanout", arguments=table(**{"alternate-exchange": "x"})), "cr", "exchange 'x'"),
    (QueueBind(b"q", b"x", b"new"), "r", "queue 'q'"),
    (QueueBind(b"q", b"x", b"new"), "w", "exchange 'x'"),
    (QueueUnbind(b"q", b"x", b"k"), "r", "queue 'q'"),
    (QueueUnbind(b"q", b"x", b"k"), "w", "exchange 'x'"),
    (ExchangeBind(b"y", b"x", b"new"), "r", "exchange 'y'"),
    (ExchangeBind(b"y", b"x", b"new"), "w", "exchange 'x'"),
    (QueuePurge(b"q"), "cw", "queue 'q'"),
    (BasicGet(b"q"), "cw", "queue 'q'"),
    (BasicConsume(b"q"), "cw", "queue 'q'"),
)  # fmt: skip


@pytest.mark.parametrize(("method", "granted", "missing"), RIGHTS_OF)
@pytest.mark.parametrize("how", ["pattern", "permission", "vhost", "user"])
def test_nothing_is_half_done_without_a_right(
    node: Node, method: Method, granted: str, missing: str, how: str
) -> None:
    """Each method needs a right; a channel that was open when the right was lost does nothing."""
    channel = node.channel()
    channel.declare(b"q")
    channel.exchange(b"x", b"topic")
    channel.exchange(b"y", b"topic")
    channel.bind(b"q", b"x", b"k")
    channel.publish(b"k", b"kept", exchange=b"x")
    vhost = node.memory.vhost
    before = definitions_of(vhost)
    if how == "pattern":
        patterns = (".*" if letter in granted else "^$" for letter in "cwr")
        node.apply(PutPermission(b"/", b"app", *patterns))
    elif how == "permission":
        node.apply(DeletePermission(b"/", b"app"))
    elif how == "vhost":
        node.apply(DeleteVhost(b"/"))
    else:
        node.apply(DeleteUser(b"app"))
    channel.send(method)
    text = channel.await_close().reply_text.decode()
    assert text.startswith("ACCESS_REFUSED - access to ")
    assert text.endswith(REFUSED)
    if how == "pattern":
        assert text == f"ACCESS_REFUSED - access to {missing} {REFUSED}"
    queue = vhost.queues[b"q"]
    assert (queue.ready_count, len(queue.consumers)) == (1, 0)
    assert definitions_of(vhost) == before


def test_deleted_permissions_and_users_keep_new_connections_out(node: Node) -> None:
    channel = node.channel()
    node.apply(DeletePermission(b"/", b"app"))
    assert node.refusal() == "530 NOT_ALLOWED - access to vhost '/' refused for user 'app'"
    node.apply(PutPermission(b"/", b"app", ".*", ".*", ".*"))
    channel.declare(b"again")
    node.apply(DeleteUser(b"app"))
    # A user of the same name is another one: what is open has its rights no more.
    node.apply(user(), PutPermission(b"/", b"app", ".*", ".*", ".*"))
    channel.refused(QueueDeclare(b"x"), 403, f"access to queue 'x' {REFUSED}")
    node.channel().declare(b"x")


def test_a_changed_password_leaves_connections_open(node: Node) -> None:
    channel = node.channel()
    node.apply(PutUser(b"app", b"", GUEST.hashing, []))
    channel.declare(b"q")
    assert node.refusal().startswith("403 ACCESS_REFUSED - Login was refused")


def test_the_tag_impersonator_is_looked_up_at_each_publish(node: Node) -> None:
    channel = node.channel()
    channel.declare(b"q")
    node.apply(user(("management", "impersonator")))
    channel.publish(b"q", b"1", FOREIGN_ID)
    assert channel.drain(b"q") == [b"1"]
    node.apply(user(("management",)))
    channel.publish(b"q", b"2", FOREIGN_ID)
    text = "user_id property set to 'somebody' but authenticated user was 'app'"
    channel.closed_with(406, text, PUBLISH)


# -- limits ------------------------------------------------------------------------------------


def test_connections_count_until_they_end(node: Node) -> None:
    node.apply(user(connections=2))
    peers = [node.open(), node.open()]
    full = (
        "530 NOT_ALLOWED - connection refused for user 'app': user connection limit (2) is reached"
    )
    for end in (Peer.close, Peer.drop):
        assert node.refusal() == full
        end(peers.pop(0))
        peers.append(node.open())
    # A connection that the broker closes counts no more, even while its socket is open.
    peers[0].send(b"garbage that is no frame" * 3)
    peers.append(node.open())
    assert node.refusal() == full
    node.apply(user(connections=NO_LIMIT))
    node.open()


def test_the_limits_of_a_vhost_come_first(node: Node) -> None:
    node.apply(user(connections=0))
    node.memory.vhost.put_parameter("vhost-limits", "limits", '{"max-connections": 1}')
    full = "530 NOT_ALLOWED - access to vhost '/' refused for user '{}': connection limit (1) is reached"
    peer = node.open(b"guest")
    for name in ("app", "guest", "outsider"):
        assert node.refusal(name.encode()) == full.format(name)
    peer.close()
    assert "user connection limit (0)" in node.refusal()
    node.memory.vhost.delete_parameter("vhost-limits", "limits")
    node.open(b"guest")
    node.open(b"guest")


def test_channels_of_a_user_count_over_all_connections(node: Node) -> None:
    node.apply(user(channels=3))
    first, second = node.open(), node.open()
    channels = [first.channel(), second.channel(), second.channel()]
    channels[2].close()
    failing = second.channel()
    failing.refused(QueuePurge(b"missing"), 404, "no queue 'missing' in vhost '/'")
    second.channel()
    first.method(9, ChannelOpen())
    text = (
        "number of channels opened for user 'app' has reached the maximum allowed user limit of (3)"
    )
    first.closed_with(530, text)
    second.channel()


def test_queues_of_a_vhost_are_limited(node: Node) -> None:
    node.memory.vhost.put_parameter("vhost-limits", "limits", '{"max-queues": 1}')
    channel = node.channel()
    channel.declare(b"q")
    channel.declare(b"q")
    text = "cannot declare queue 'r': queue limit in vhost '/' (1) is reached"
    channel.refused(QueueDeclare(b"r", exclusive=True), 406, text)
    channel = channel.peer.channel()
    channel.delete(b"q")
    channel.declare(b"r")


# -- logins ------------------------------------------------------------------------------------


def log_in(peer: Peer, password: bytes, name: bytes = b"app") -> None:
    response = b"\0" + name + b"\0" + password
    peer.method(0, ConnectionStartOk(CAPABILITIES, b"PLAIN", response, b"en_US"))


def test_mechanisms_are_those_of_the_configuration() -> None:
    node = Node(Settings(auth_mechanisms=("EXTERNAL", "AMQPLAIN")))
    assert node.greeted().expect(ConnectionStart).mechanisms == b"AMQPLAIN"
    peer = node.greeted(tls="TLSv1.3")
    assert peer.expect(ConnectionStart).mechanisms == b"EXTERNAL AMQPLAIN"


@pytest.mark.parametrize(
    ("mechanism", "tls", "text"),
    [
        (b"PLAIN", "", "invalid authentication mechanism 'PLAIN'"),
        (b"EXTERNAL", "", "invalid authentication mechanism 'EXTERNAL'"),
        (b"RABBIT-CR-DEMO", "", "invalid authentication mechanism 'RABBIT-CR-DEMO'"),
        (b"NOPE", "", "unknown authentication mechanism 'NOPE'"),
        (
            b"EXTERNAL",
            "TLSv1.3",
            "EXTERNAL login refused: connection peer presented no TLS (x.509) certificate",
        ),
    ],
)
def test_mechanisms_that_are_refused(
    caplog: pytest.LogCaptureFixture, mechanism: bytes, tls: str, text: str
) -> None:
    node = Node(Settings(auth_mechanisms=("EXTERNAL", "AMQPLAIN")))
    peer = node.greeted(tls=tls)
    peer.expect(ConnectionStart)
    peer.method(0, ConnectionStartOk(b"", mechanism, b"\0app\0guest", b"en_US"))
    assert text in caplog.records[-1].getMessage()
    assert peer.frames_until_end() == []


@pytest.mark.parametrize(
    ("name", "is_granted"), [(b"app", True), (b"CN=unknown", False), (b"guest", True)]
)
def test_a_certificate_names_the_user(name: bytes, is_granted: bool) -> None:
    """The response is ignored; a user without a password may log in so."""
    node = Node(Settings(auth_mechanisms=("EXTERNAL",)))
    node.apply(PutUser(b"app", b"", GUEST.hashing, []))
    peer = node.greeted(name, "TLSv1.3")
    peer.expect(ConnectionStart)
    peer.method(0, ConnectionStartOk(CAPABILITIES, b"EXTERNAL", b"\0x\0y", b"en_US"))
    if is_granted:
        peer.expect(ConnectionTune)
    else:
        text = peer.await_close().reply_text.decode()
        assert "authentication mechanism EXTERNAL" in text


def test_guesses_are_answered_late_and_nobody_else_waits(node: Node) -> None:
    waits = []
    for _ in range(FREE_FAILURES + 4):
        peer = node.greeted()
        peer.expect(ConnectionStart)
        begin_ms = node.memory.now_ms
        log_in(peer, b"wrong")
        assert peer.await_close().reply_code == 403
        waits.append(node.memory.now_ms - begin_ms)
    assert waits[:FREE_FAILURES] == [0] * FREE_FAILURES
    assert waits[FREE_FAILURES:] == sorted(waits[FREE_FAILURES:])
    assert waits[FREE_FAILURES] > 0
    # Another user of the same address does not wait.
    peer = node.greeted()
    peer.expect(ConnectionStart)
    log_in(peer, b"guest", b"guest")
    peer.expect(ConnectionTune, 0)
    # The right password of the guessed user waits at the address of the guesses.
    peer = node.greeted()
    peer.expect(ConnectionStart)
    begin_ms = node.memory.now_ms
    log_in(peer, b"guest")
    peer.expect(ConnectionTune)
    assert 0 < node.memory.now_ms - begin_ms <= WAIT_MAX_MS + 1000
    node.channel().declare(b"q")


def test_whoever_does_not_await_the_answer_is_refused(node: Node) -> None:
    for _ in range(FREE_FAILURES):
        node.refusal(b"nobody")
    peer = node.greeted()
    peer.expect(ConnectionStart)
    log_in(peer, b"wrong", b"nobody")
    log_in(peer, b"guest", b"guest")
    assert peer.frames_until_end() == []


def test_refused_logins_do_not_fill_the_log(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(20):
        log_in(node.greeted(), b"wrong")
    refused = [line for line in caplog.messages if "login refused" in line]
    assert len(refused) == 5
    node.memory.advance(12_000)
    assert "15 more logins from test refused within 10 s" in caplog.messages
