"""The client of etcd against real servers: pages, transactions, leases, status."""

import threading

import pytest

from tests.support.etcd import EtcdServer
from warrenmq.cluster.metadata.errors import Compacted, EtcdRefused, LeaseGone
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import (
    EQUAL,
    GREATER,
    LESS,
    OPERATIONS_MAX,
    Compare,
    KeyValue,
    OperationResult,
    RawDelete,
    RawGet,
    RawPut,
    end_of,
    exists,
    has_none,
    is_created,
    is_modified,
)


@pytest.fixture
def prefix(cluster_name: str) -> bytes:
    return cluster_name.encode() + b"/"


def keys_of(gateway: EtcdGateway, prefix: bytes) -> list[bytes]:
    return [found.key.removeprefix(prefix) for found in gateway.read_range(prefix)[0]]


def test_pages_are_of_one_revision_while_others_write(gateway: EtcdGateway, prefix: bytes) -> None:
    """A range of many pages has all keys as they were at its revision, not as they are later."""
    keys = [b"%s%04d" % (prefix, number) for number in range(200)]
    for start in range(0, len(keys), 100):
        gateway.transact([], [RawPut(key, b"old") for key in keys[start : start + 100]])
    is_over = threading.Event()
    is_writing = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            gateway.transact([], [RawPut(keys[number % 200], b"new"), RawPut(prefix + b"z", b"")])
            gateway.transact([], [RawDelete(keys[(number + 100) % 200])])
            number += 1
            is_writing.set()

    writer = threading.Thread(target=write)
    writer.start()
    is_writing.wait()
    found, revision = gateway.read_range(prefix, page=7)
    is_over.set()
    writer.join()
    assert max(key.mod_revision for key in found) <= revision
    # As in one page of the same revision.
    assert gateway.read_range(prefix, revision, page=1000) == (found, revision)
    assert gateway.read_range(prefix)[0] != found


def test_keys_alone_come_without_their_values(gateway: EtcdGateway, prefix: bytes) -> None:
    gateway.transact([], [RawPut(prefix + b"a", b"value")])
    found, _ = gateway.read_range(prefix, keys_only=True)
    assert [(key.key, key.value) for key in found] == [(prefix + b"a", b"")]
    assert found[0].create_revision > 0


def test_key_has_its_revisions_and_its_lease(gateway: EtcdGateway, prefix: bytes) -> None:
    """A key of any bytes comes back as written; a replaced one keeps its create revision."""
    key = prefix + bytes(range(256))
    lease = gateway.grant(60)
    created = gateway.transact([], [RawPut(key, b"\0\xff", lease)]).revision
    assert gateway.read(key) == KeyValue(key, b"\0\xff", created, created, lease)
    modified = gateway.transact([], [RawPut(key, b"")]).revision
    assert gateway.read(key) == KeyValue(key, b"", created, modified, 0)
    assert gateway.read(key, created) == KeyValue(key, b"\0\xff", created, created, lease)
    assert gateway.read(prefix + b"none") is None
    assert modified == created + 1 == gateway.revision(b"/")


def test_transaction_does_what_its_comparisons_decide(gateway: EtcdGateway, prefix: bytes) -> None:
    """Each kind of comparison decides which operations are carried out."""
    key, other = prefix + b"a", prefix + b"b"
    lease = gateway.grant(60)
    at = gateway.transact([], [RawPut(key, b"v", lease)]).revision
    value = Compare(key, "VALUE", EQUAL, b"v")
    true = [
        is_created(key, at), is_created(other, 0), is_modified(key, at), exists(key), value,
        Compare(key, "LEASE", EQUAL, lease), Compare(key, "MOD", LESS, at + 1),
        has_none(prefix + b"c"), Compare(prefix, "MOD", GREATER, at - 1, end_of(prefix)),
    ]  # fmt: skip
    false = [
        is_created(key, 0), is_created(key, at + 1), is_modified(key, at - 1), exists(other),
        has_none(prefix), Compare(key, "VALUE", EQUAL, b"w"), Compare(key, "LEASE", EQUAL, 0),
        Compare(prefix, "MOD", GREATER, at, end_of(prefix)),
    ]  # fmt: skip
    done = gateway.transact(true, [RawGet(key)], [RawGet(other)])
    assert done.succeeded
    assert done.responses[0].found[0].value == b"v"
    for compare in false:
        refused = gateway.transact([value, compare], [RawDelete(key)], [RawGet(other)])
        assert not refused.succeeded, compare
        assert refused.responses == (OperationResult(),)


def test_transaction_is_whole_or_nothing(gateway: EtcdGateway, prefix: bytes) -> None:
    """Operations of several kinds are one revision; a refused one leaves none of them."""
    gateway.transact([], [RawPut(prefix + b"a", b""), RawPut(prefix + b"b", b"")])
    with pytest.raises(EtcdRefused, match="duplicate key"):
        gateway.transact([], [RawPut(prefix + b"c", b"")] * 2)
    with pytest.raises(LeaseGone):
        gateway.transact([], [RawPut(prefix + b"c", b""), RawPut(prefix + b"d", b"", 1)])
    with pytest.raises(EtcdRefused, match="too large") as large:
        gateway.transact([], [RawDelete(prefix + b"a"), RawPut(prefix + b"c", bytes(1_600_000))])
    assert not large.value.may_be_full
    with pytest.raises(ValueError, match="128"):
        gateway.transact([], [RawGet(prefix)] * (OPERATIONS_MAX + 1))
    assert keys_of(gateway, prefix) == [b"a", b"b"]
    done = gateway.transact(
        [], [RawDelete(prefix, prefix + b"b"), RawPut(prefix + b"c", b""), RawDelete(prefix + b"x")]
    )
    assert [response.deleted_count for response in done.responses] == [1, 0, 0]
    assert keys_of(gateway, prefix) == [b"b", b"c"]


def test_lease_keeps_its_keys_until_it_ends(gateway: EtcdGateway, prefix: bytes) -> None:
    lease = gateway.grant(30)
    gateway.transact([], [RawPut(prefix + b"a", b"", lease)])
    assert gateway.keep_alive(lease) == 30
    assert keys_of(gateway, prefix) == [b"a"]
    gateway.revoke(lease)
    gateway.revoke(lease)
    assert keys_of(gateway, prefix) == []
    assert gateway.keep_alive(lease) == 0


def test_compacted_revision_cannot_be_read(own_etcd: EtcdServer) -> None:
    gateway = EtcdGateway([own_etcd.url])
    first = gateway.transact([], [RawPut(b"/a", b"")]).revision
    second = gateway.transact([], [RawPut(b"/a", b"")]).revision
    own_etcd.ctl("compact", str(second))
    assert gateway.read_range(b"/", second)[1] == second
    with pytest.raises(Compacted):
        gateway.read_range(b"/", first)
    gateway.close()


def test_full_store_refuses_writes_and_says_so(own_etcd: EtcdServer) -> None:
    """An alarm of etcd's is in the status, and an error that more space would help."""
    gateway = EtcdGateway([own_etcd.url])
    status = gateway.status()
    assert status.has_leader and status.alarms == () and status.db_size_bytes > 0
    assert status.version.startswith("3.")
    assert [(member.name, member.client_urls) for member in status.members] == [
        (own_etcd.name, (own_etcd.url,))
    ]
    own_etcd.raise_space_alarm()
    assert "NOSPACE" in gateway.status().alarms[0]
    with pytest.raises(EtcdRefused, match="space") as full:
        gateway.transact([], [RawPut(b"/a", b"")])
    assert full.value.may_be_full
    gateway.close()
