"""The client of etcd when members die or freeze, and when an answer gets lost."""

import socket
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.metadata.relay import AnswerLosingRelay, answering_once
from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.etcd import HOST, EtcdServer, free_ports, running_cluster
from warrenmq.broker.definitions.metadata import PutVhost
from warrenmq.cluster.metadata import endpoints
from warrenmq.cluster.metadata.errors import EtcdUnavailable
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawPut, is_created


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[EtcdServer]]:
    with running_cluster(tmp_path_factory.mktemp("members"), 3) as members:
        yield members


def make(gateway: EtcdGateway, key: bytes) -> None:
    """Make a key that does not exist, whatever the outcome of each attempt is said to be."""
    while True:
        try:
            gateway.transact([is_created(key, 0)], [RawPut(key, b"")])
        except EtcdUnavailable:
            continue
        return


def test_client_goes_on_when_any_member_dies(members: Sequence[EtcdServer]) -> None:
    """One of the three deaths is that of the leader: the others elect one meanwhile."""
    gateway = EtcdGateway([member.url for member in members])
    keys = []
    for number, member in enumerate(members):
        member.kill()
        keys.append(b"/death/%d" % number)
        make(gateway, keys[-1])
        lease = gateway.grant(60)
        assert gateway.keep_alive(lease) == 60
        assert [found.key for found in gateway.read_range(b"/death/")[0]] == keys
        assert gateway.status().has_leader
        member.start()
        member.await_ready()
    gateway.close()


def test_client_leaves_a_frozen_member(members: Sequence[EtcdServer]) -> None:
    """A read goes to the next member in time; a transaction ends with an unknown outcome."""
    gateway = EtcdGateway([member.url for member in members])
    make(gateway, b"/frozen/a")
    members[0].freeze()
    try:
        # Elsewhere it is known when a leader is there again.
        make(EtcdGateway([member.url for member in members[1:]]), b"/frozen/b")
        assert len(gateway.read_range(b"/frozen/")[0]) == 2
        make(gateway, b"/frozen/c")
        assert len(gateway.read_range(b"/frozen/")[0]) == 3
    finally:
        members[0].thaw()
    gateway.close()


def test_member_without_a_leader_does_nothing(
    members: Sequence[EtcdServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so at once, and does not leave open whether it may carry a transaction out later."""
    gateway = EtcdGateway([members[0].url])
    for member in members[1:]:
        member.kill()
    eventually(lambda: not gateway.status().has_leader, "the last member has no leader")
    monkeypatch.setattr(endpoints, "REQUEST_S", 2.0)
    with pytest.raises(EtcdUnavailable, match=f"{members[0].url}: etcdserver: no leader") as lost:
        gateway.transact([], [RawPut(b"/lonely", b"")])
    assert not lost.value.is_outcome_unknown
    monkeypatch.setattr(endpoints, "REQUEST_S", PATIENCE_S)
    for member in members[1:]:
        member.start()
    # The members elect a leader meanwhile, and the client waits for it.
    assert gateway.transact([is_created(b"/lonely", 0)], [RawPut(b"/lonely", b"")]).succeeded
    for member in members[1:]:
        member.await_ready()
    gateway.close()


def test_dead_etcd_has_done_nothing() -> None:
    """The text names each member and why it did not answer."""
    dead = [f"http://{HOST}:{port}" for port in free_ports(2)]
    gateway = EtcdGateway(dead)
    with pytest.raises(EtcdUnavailable, match=f"{dead[0]}: Connection refused; {dead[1]}") as read:
        gateway.read(b"/a")
    with pytest.raises(EtcdUnavailable) as written:
        gateway.transact([], [RawPut(b"/a", b"")])
    assert not read.value.is_outcome_unknown and not written.value.is_outcome_unknown


def test_transaction_after_refused_connections_is_carried_out(own_etcd: EtcdServer) -> None:
    """A member that cannot be reached has done nothing, so the next one is asked."""
    (port,) = free_ports(1)
    gateway = EtcdGateway([f"http://{HOST}:{port}", own_etcd.url])
    assert gateway.transact([], [RawPut(b"/a", b"")]).succeeded
    gateway.close()


def test_transaction_whose_answer_is_lost_has_an_unknown_outcome(own_etcd: EtcdServer) -> None:
    """It is not repeated by itself at another member; with a condition its author may repeat it."""
    with AnswerLosingRelay(own_etcd.client_port) as relay:
        gateway = EtcdGateway([relay.url, own_etcd.url])
        relay.lose_next()
        with pytest.raises(EtcdUnavailable, match="without response") as lost:
            gateway.transact([is_created(b"/a", 0)], [RawPut(b"/a", b"first")])
        assert lost.value.is_outcome_unknown
        assert not gateway.transact([is_created(b"/a", 0)], [RawPut(b"/a", b"second")]).succeeded
        found = gateway.read(b"/a")
        assert found is not None and found.value == b"first"
        gateway.close()


def test_read_whose_answer_is_lost_is_repeated(own_etcd: EtcdServer) -> None:
    with AnswerLosingRelay(own_etcd.client_port) as relay:
        gateway = EtcdGateway([relay.url, own_etcd.url])
        relay.lose_next()
        assert gateway.read(b"/a") is None
        alone = EtcdGateway([relay.url])
        relay.lose_next()
        with pytest.raises(EtcdUnavailable) as lost:
            alone.read(b"/a")
        assert not lost.value.is_outcome_unknown
        gateway.close()
        alone.close()


def test_apply_repeats_what_may_be_lost(own_etcd: EtcdServer) -> None:
    """Puts and deletions have the same effect twice; a caller hears if both answers are lost."""
    with AnswerLosingRelay(own_etcd.client_port) as relay:
        metadata = EtcdMetadata(EtcdGateway([relay.url]), "c")
        relay.lose_next()
        metadata.apply([PutVhost(b"a", 1)])
        relay.lose_next(2)
        with pytest.raises(EtcdUnavailable) as lost:
            metadata.apply([PutVhost(b"b", 2)])
        assert lost.value.is_outcome_unknown
        assert [vhost.name for vhost in metadata.load().vhosts] == [b"a", b"b"]
        metadata.close()


def test_answer_that_is_not_etcds_is_an_unknown_outcome() -> None:
    """Something else may listen at the address."""
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    gateway = EtcdGateway([f"http://{HOST}:{port}"])
    for answer in (
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 404 No\r\n\r\n<html>",
        b"SSH-2.0\r\n",
    ):
        with answering_once(listener, answer), pytest.raises(EtcdUnavailable) as odd:
            gateway.transact([], [RawPut(b"/a", b"")])
        assert odd.value.is_outcome_unknown and "\n" not in str(odd.value)
    listener.close()
    gateway.close()


@pytest.mark.parametrize(
    "url", ["", "etcd", "http://", "ftp://h:1", "http://h:1/path", "http://h:port", "h:2379"]
)
def test_malformed_url_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="URL of etcd"):
        EtcdGateway([url])


def test_etcd_needs_an_url() -> None:
    with pytest.raises(ValueError, match="at least one"):
        EtcdGateway([])
