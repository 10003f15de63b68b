"""Etcd with users, and etcd behind TLS: who is let in, and what the others are told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.metadata.watched import watching
from tests.support.awaiting import eventually
from tests.support.certificates import Authority, Certificate
from tests.support.etcd import READABLE, EtcdServer, running_etcd, running_members
from warrenmq.cluster.metadata.endpoints import Credentials, TlsFiles
from warrenmq.cluster.metadata.errors import EtcdRefused, EtcdUnavailable
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawPut

OWN = READABLE


def guard(server: EtcdServer) -> None:
    """Let the user `warren` with the password `secret` use the keys of cluster c, and no others."""
    server.ctl("role", "add", "warren")
    server.ctl("role", "grant-permission", "warren", "readwrite", "/warren/c/", "--prefix")
    for user in ("root:root", "warren:secret"):
        server.ctl("user", "add", user)
    server.ctl("user", "grant-role", "root", "root")
    server.ctl("user", "grant-role", "warren", "warren")
    server.ctl("auth", "enable")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd that wants its users to log in."""
    with running_etcd(tmp_path_factory.mktemp("guarded")) as server:
        guard(server)
        yield server


@pytest.fixture
def allowed(guarded: EtcdServer) -> Iterator[EtcdGateway]:
    gateway = EtcdGateway([guarded.url], Credentials("warren", "secret"))
    yield gateway
    gateway.close()


def test_user_may_do_everything_with_its_own_keys(allowed: EtcdGateway) -> None:
    lease = allowed.grant(60)
    made = allowed.transact([], [RawPut(OWN + b"a", b"v", lease)]).revision
    assert [found.value for found in allowed.read_range(OWN)[0]] == [b"v"]
    assert allowed.keep_alive(lease) == 60
    with watching(allowed, OWN, made) as watched:
        watched.await_revision(made)
        allowed.revoke(lease)
        eventually(lambda: len(watched.told) == 2, "the watch tells of the end of the lease")
    assert allowed.status().has_leader
    assert allowed.revision(OWN) >= made


def test_user_may_not_use_keys_of_others(allowed: EtcdGateway) -> None:
    with pytest.raises(EtcdRefused, match="permission denied"):
        allowed.read(b"/other")
    with pytest.raises(EtcdRefused, match="permission denied"):
        allowed.transact([], [RawPut(b"/other", b"")])
    with watching(allowed, b"/other/", 1) as watched:
        eventually(lambda: watched.error is not None, "the watch is refused")
    assert isinstance(watched.error, EtcdRefused)


def test_token_that_a_restart_has_lost_is_replaced(
    guarded: EtcdServer, allowed: EtcdGateway
) -> None:
    """Calls and watches go on; etcd keeps its tokens in memory."""
    written = [allowed.transact([], [RawPut(OWN + b"a", b"0")]).revision]
    # Its token is the watch's alone.
    watcher = EtcdGateway([guarded.url], Credentials("warren", "secret"))
    with watching(watcher, OWN, written[0]) as watched:
        watched.await_revision(written[0])
        # Etcd replays what came after the last stored write, logins among it.
        written.append(allowed.transact([], [RawPut(OWN + b"a", b"1")]).revision)
        guarded.ctl("defrag", user="root:root")
        guarded.kill()
        guarded.start()
        guarded.await_ready(allowed)
        written.append(allowed.transact([], [RawPut(OWN + b"a", b"2")]).revision)
        watched.await_revision(written[-1])
    assert watched.revisions() == written
    watcher.close()


def test_token_that_is_older_than_a_change_of_users_is_replaced(
    guarded: EtcdServer, allowed: EtcdGateway
) -> None:
    allowed.transact([], [RawPut(OWN + b"a", b"1")])
    guarded.ctl("role", "add", "another", user="root:root")
    assert allowed.transact([], [RawPut(OWN + b"a", b"2")]).succeeded
    guarded.ctl("role", "delete", "another", user="root:root")


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (Credentials("warren", "wrong"), "authentication failed, invalid user ID or password"),
        (Credentials("nobody", "secret"), "authentication failed, invalid user ID or password"),
        (None, "user name is empty"),
    ],
)
def test_stranger_is_refused_with_a_reason(
    guarded: EtcdServer, credentials: Credentials | None, text: str
) -> None:
    """The reason does not repeat the password."""
    gateway = EtcdGateway([guarded.url], credentials)
    with pytest.raises(EtcdRefused, match=text) as refused:
        gateway.transact([], [RawPut(OWN + b"a", b"")])
    assert "wrong" not in str(refused.value) and "\n" not in str(refused.value)
    assert "secret" not in repr(credentials)
    gateway.close()


def test_client_logs_in_when_etcd_begins_to_want_it(own_etcd: EtcdServer) -> None:
    """A client with a user is served by an etcd without users too, as etcd's own client is."""
    gateway = EtcdGateway([own_etcd.url], Credentials("warren", "secret"))
    assert gateway.transact([], [RawPut(OWN, b"1")]).succeeded
    guard(own_etcd)
    assert gateway.transact([], [RawPut(OWN, b"2")]).succeeded
    gateway.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.issue("client")


@pytest.fixture(scope="module")
def encrypted(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, client: Certificate
) -> Iterator[EtcdServer]:
    """An etcd that wants certificates of its clients."""
    # Etcd's gateway is itself a client of etcd, with the server's certificate.
    tls = TlsFiles(authority.certfile, client.certfile, client.keyfile)
    directory = tmp_path_factory.mktemp("encrypted")
    server = EtcdServer(directory, "m0", authority.issue("server"), authority, tls)
    with running_members([server]):
        yield server


def test_tls_with_a_certificate_on_both_sides(
    encrypted: EtcdServer, authority: Authority, client: Certificate
) -> None:
    tls = TlsFiles(authority.certfile, client.certfile, client.keyfile)
    gateway = EtcdGateway([encrypted.url], tls=tls)
    made = gateway.transact([], [RawPut(OWN + b"a", b"v")]).revision
    with watching(gateway, OWN, made) as watched:
        watched.await_revision(made)
    assert gateway.status().has_leader
    gateway.close()


def test_etcd_of_another_authority_is_not_trusted(
    encrypted: EtcdServer, client: Certificate, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    tls = TlsFiles(stranger.certfile, client.certfile, client.keyfile)
    gateway = EtcdGateway([encrypted.url], tls=tls)
    with pytest.raises(EtcdUnavailable, match="certificate verify failed") as refused:
        gateway.transact([], [RawPut(OWN + b"a", b"")])
    assert not refused.value.is_outcome_unknown and "\n" not in str(refused.value)


def test_client_without_a_certificate_is_refused(
    encrypted: EtcdServer, authority: Authority
) -> None:
    gateway = EtcdGateway([encrypted.url], tls=TlsFiles(authority.certfile))
    with pytest.raises(EtcdUnavailable, match=encrypted.url):
        gateway.read(OWN)
    gateway.close()


def test_unreadable_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(EtcdRefused, match=r"missing\.pem"):
        EtcdGateway(["https://localhost"], tls=TlsFiles(missing))
    with pytest.raises(EtcdRefused, match=r"missing\.pem"):
        EtcdGateway(["https://localhost"], tls=TlsFiles(authority.certfile, missing, missing))
