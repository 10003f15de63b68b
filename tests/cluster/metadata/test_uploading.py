"""An upload of a lone node's definitions: whole, alone, and taken over when it breaks off."""

import threading
from typing import Any

import pytest

from tests.cluster.metadata.relay import AnswerLosingRelay
from tests.support.etcd import EtcdServer
from warrenmq.broker.definitions.metadata import (
    NO_ID,
    Change,
    DeleteQueue,
    PutBinding,
    PutExchange,
    PutQueue,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.metadata.errors import EtcdUnavailable
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawPut, TxnResult
from warrenmq.cluster.metadata.uploading import UploadConflict, UploadUnfinished


def definitions(count: int, user: bytes = b"u") -> list[Change]:
    """Queues with a binding each, of a lone node: they have ids and no births."""
    names = [b"q%03d" % number for number in range(count)]
    return [
        *(PutBinding(b"/", b"x", name, True, b"", b"") for name in names),
        PutVhost(b"/", 1),
        PutUser(user, b"h", "", []),
        PutExchange(b"/", b"x", b"fanout", False, False, b""),
        *(PutQueue(b"/", id + 1, name, True, False, b"") for id, name in enumerate(names)),
        PutBinding(b"/", b"amq.topic", b"x", False, b"#", b""),
    ]


@pytest.fixture
def metadata(gateway: EtcdGateway, cluster_name: str) -> EtcdMetadata:
    return EtcdMetadata(gateway, cluster_name)


class Broken(Exception):
    """The uploading node has died."""


def break_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a node die after `count` transactions, which are carried out."""
    transact = EtcdGateway.transact
    done = 0

    def transact_or_die(*arguments: Any) -> TxnResult:
        nonlocal done
        if done == count:
            raise Broken
        done += 1
        return transact(*arguments)

    # The lease of a dead node is not revoked: it ends by itself, or by hand in a test.
    monkeypatch.setattr(EtcdGateway, "revoke", lambda gateway, lease: None)
    monkeypatch.setattr(EtcdGateway, "transact", transact_or_die)


def end_lease_of_uploader(metadata: EtcdMetadata) -> None:
    uploader = metadata.get(metadata.key("uploader"))
    assert uploader is not None
    metadata.gateway.revoke(uploader.lease)


def users(metadata: EtcdMetadata) -> list[bytes]:
    return [user.name for user in metadata.load().users]


def test_upload_of_many_definitions_is_complete(metadata: EtcdMetadata) -> None:
    """They take several transactions; bindings get the births of their ends."""
    record = metadata.key("meta")
    revision = metadata.upload(definitions(250), [RawPut(record, b"m")])
    found, loaded_at = metadata.load_at()
    assert loaded_at == revision
    written = metadata.get(record)
    assert written is not None and written.mod_revision == revision
    assert len(found.queues) == 250 and len(found.bindings) == 251
    births = {queue.name: queue.birth for queue in found.queues}
    assert len(set(births.values())) > 1
    for binding in found.bindings:
        if binding.destination_is_queue:
            assert binding.source_birth == found.exchanges[0].birth
            assert binding.destination_birth == births[binding.destination]
    # A binding does not outlive the life of its queue.
    metadata.apply([DeleteQueue(b"/", NO_ID, b"q000")])
    metadata.apply([PutQueue(b"/", NO_ID, b"q000", True, False, b"")])
    assert len(metadata.load().bindings) == 250


def test_large_definitions_are_uploaded_in_pieces_that_etcd_takes(metadata: EtcdMetadata) -> None:
    arguments = bytes(200_000)
    queues = [PutQueue(b"/", 1, b"%d" % number, True, False, arguments) for number in range(12)]
    metadata.upload(queues)
    assert [queue.arguments for queue in metadata.load().queues] == [arguments] * 12


def test_cluster_with_definitions_takes_no_upload(metadata: EtcdMetadata) -> None:
    metadata.upload(definitions(1))
    before, revision = metadata.load_at()
    with pytest.raises(UploadConflict, match="has definitions already"):
        metadata.upload(definitions(2))
    assert metadata.load_at()[1] == revision
    assert len(before.queues) == 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_broken_upload_is_replaced_by_the_next(
    metadata: EtcdMetadata, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Nobody reads it; another upload waits for its lease, and then leaves nothing of it."""
    with monkeypatch.context() as broken:
        break_after(count, broken)
        with pytest.raises(Broken):
            metadata.upload(definitions(250, b"first"))
    with pytest.raises(UploadUnfinished):
        metadata.load()
    with pytest.raises(UploadConflict, match="another node uploads"):
        metadata.upload(definitions(1, b"early"))
    end_lease_of_uploader(metadata)
    metadata.upload(definitions(3, b"second"))
    assert users(metadata) == [b"second"]
    assert len(metadata.load().queues) == 3 and len(metadata.load().bindings) == 4


def test_upload_that_was_taken_over_ends_without_a_change(
    metadata: EtcdMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that slept longer than its lease goes on too late: two uploads do not mix."""
    transact = EtcdGateway.transact
    count = 0

    def transact_late(gateway: EtcdGateway, *arguments: Any) -> TxnResult:
        nonlocal count
        count += 1
        if count == 3:
            end_lease_of_uploader(metadata)
            metadata.upload(definitions(3, b"second"))
        return transact(gateway, *arguments)

    monkeypatch.setattr(EtcdGateway, "transact", transact_late)
    with pytest.raises(UploadConflict, match="took over"):
        metadata.upload(definitions(250, b"first"))
    assert users(metadata) == [b"second"]
    assert len(metadata.load().queues) == 3


def test_one_of_several_uploads_at_once_wins(metadata: EtcdMetadata) -> None:
    """The others have a conflict, whatever the order."""
    won: list[bytes] = []
    conflicts: list[UploadConflict] = []

    def upload(user: bytes) -> None:
        try:
            metadata.upload(definitions(50, user))
            won.append(user)
        except UploadConflict as conflict:
            conflicts.append(conflict)

    threads = [threading.Thread(target=upload, args=[b"%d" % number]) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(conflicts) == 4
    assert users(metadata) == won


@pytest.mark.parametrize("lost", range(1, 5))
def test_upload_goes_on_when_an_answer_is_lost(
    own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """It finds out by its marker whether the transaction was carried out, the last one too."""
    with AnswerLosingRelay(own_etcd.client_port) as relay:
        gateway = EtcdGateway([relay.url])
        transact = gateway.transact
        count = 0

        def transact_with_loss(*arguments: Any) -> TxnResult:
            nonlocal count
            count += 1
            if count == lost:
                relay.lose_next()
            return transact(*arguments)

        monkeypatch.setattr(gateway, "transact", transact_with_loss)
        metadata = EtcdMetadata(gateway, "c")
        revision = metadata.upload(definitions(90))
        found, loaded_at = metadata.load_at()
        assert (len(found.queues), len(found.bindings)) == (90, 91)
        assert loaded_at == revision
        metadata.close()


def test_upload_that_etcd_leaves_is_broken(own_etcd: EtcdServer) -> None:
    metadata = EtcdMetadata(EtcdGateway([own_etcd.url]), "c")
    own_etcd.kill()
    with pytest.raises(EtcdUnavailable):
        metadata.upload(definitions(1))
    metadata.close()
