"""A watch tells each revision once, whole and in order, whatever becomes of its connections."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.metadata.relay import slow_watches
from tests.cluster.metadata.watched import watching
from tests.support.awaiting import eventually
from tests.support.etcd import EtcdServer, running_cluster
from warrenmq.cluster.metadata import watching as watching_module
from warrenmq.cluster.metadata.endpoints import Endpoints
from warrenmq.cluster.metadata.errors import Compacted, EtcdUnavailable, RevisionsLost
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawDelete, RawPut, end_of, is_created


@pytest.fixture
def prefix(cluster_name: str) -> bytes:
    return cluster_name.encode() + b"/"


def put(gateway: EtcdGateway, *keys: bytes) -> int:
    return gateway.transact([], [RawPut(key, b"v") for key in keys]).revision


def test_watch_tells_past_and_coming_revisions(gateway: EtcdGateway, prefix: bytes) -> None:
    """All events of a revision come together, with the keys' revisions."""
    first = put(gateway, prefix + b"a", prefix + b"b")
    put(gateway, b"elsewhere")
    with watching(gateway, prefix, first) as watched:
        watched.await_revision(first)
        second = gateway.transact(
            [], [RawDelete(prefix + b"a"), RawPut(prefix + b"b", b"w"), RawPut(prefix + b"c", b"")]
        ).revision
        watched.await_revision(second)
    assert watched.revisions() == [first, second]
    told = [(event.type, event.kv.key, event.kv.value) for event in watched.told[0][1]]
    assert told == [("PUT", prefix + b"a", b"v"), ("PUT", prefix + b"b", b"v")]
    deleted, modified, created = watched.told[1][1]
    assert (deleted.type, deleted.kv.key) == ("DELETE", prefix + b"a")
    assert (modified.kv.create_revision, modified.kv.mod_revision) == (first, second)
    assert (created.kv.create_revision, created.kv.value) == (second, b"")


def test_watch_opens_anew_in_silence_and_tells_each_revision_once(
    gateway: EtcdGateway, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revisions that come while a watch opens itself anew are neither lost nor told twice."""
    monkeypatch.setattr(watching_module, "SILENCE_S", 0.05)
    opened = threading.Semaphore(0)
    open_stream = Endpoints.open_stream

    def open_and_tell(*arguments: Any) -> Any:
        opened.release()
        return open_stream(*arguments)

    monkeypatch.setattr(Endpoints, "open_stream", open_and_tell)
    written = [put(gateway, prefix + b"a", prefix + b"b")]
    with watching(gateway, prefix, written[0]) as watched:
        for _ in range(20):
            opened.acquire()
            for _ in range(5):
                written.append(put(gateway, prefix + b"a", prefix + b"b"))
        watched.await_revision(written[-1])
    assert watched.revisions() == written
    assert {len(events) for _, events in watched.told} == {2}


def test_watch_tells_a_large_revision_at_once(gateway: EtcdGateway, prefix: bytes) -> None:
    keys = [b"%s%05d" % (prefix, number) for number in range(10_000)]
    for start in range(0, len(keys), 100):
        last = put(gateway, *keys[start : start + 100])
    with watching(gateway, prefix, last + 1) as watched:
        deleted = gateway.transact([], [RawDelete(prefix, end_of(prefix))]).revision
        watched.await_revision(deleted)
    with watching(gateway, prefix, deleted) as late:
        late.await_revision(deleted)
    for told in (watched.told, late.told):
        ((_, events),) = told
        assert [event.kv.key for event in events] == keys


def test_watch_waits_longer_for_a_member_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Openings that each end before the member has sent anything would go on for ever."""
    monkeypatch.setattr(watching_module, "SILENCE_S", 0.05)
    with slow_watches(0.3) as url:
        gateway = EtcdGateway([url])
        with watching(gateway, b"/", 5) as watched:
            watched.await_revision(5)
        gateway.close()


def test_watch_goes_on_after_a_restart_of_etcd(own_etcd: EtcdServer) -> None:
    gateway = EtcdGateway([own_etcd.url])
    written = [put(gateway, b"/a")]
    with watching(gateway, b"/", written[0]) as watched:
        watched.await_revision(written[-1])
        written.append(put(gateway, b"/a"))
        own_etcd.restart()
        written.append(put(gateway, b"/a"))
        watched.await_revision(written[-1])
    assert watched.revisions() == written
    gateway.close()


def test_watch_survives_compactions_of_what_it_has_told(own_etcd: EtcdServer) -> None:
    """A compaction disturbs a watch only if it takes revisions that the watch has not told yet."""
    gateway = EtcdGateway([own_etcd.url])
    written = [put(gateway, b"/a")]
    with watching(gateway, b"/", written[0]) as watched:
        for _ in range(3):
            written.append(put(gateway, b"/a"))
            watched.await_revision(written[-1])
            own_etcd.ctl("compact", str(written[-1]))
        # The watch opens itself anew, from the revision after the compacted one.
        own_etcd.restart()
        written.append(put(gateway, b"/a"))
        watched.await_revision(written[-1])
    assert watched.revisions() == written
    with watching(gateway, b"/", written[0]) as late:
        eventually(lambda: late.error is not None, "the late watch is told of the compaction")
    assert isinstance(late.error, Compacted)
    assert str(written[0]) in str(late.error) and late.told == []
    gateway.close()


def test_watch_ends_when_etcd_has_lost_revisions(own_etcd: EtcdServer) -> None:
    """A wiped etcd begins at revision 1: its silence must not be taken for peace."""
    gateway = EtcdGateway([own_etcd.url])
    last = [put(gateway, b"/a") for _ in range(5)][-1]
    with watching(gateway, b"/", last) as watched:
        watched.await_revision(last)
        own_etcd.wipe()
        eventually(lambda: watched.error is not None, "the watch tells of the loss")
    assert isinstance(watched.error, RevisionsLost)
    assert f"was at revision {last}" in str(watched.error)
    gateway.close()


def test_watch_leaves_a_silent_member_and_one_without_a_leader(tmp_path: Path) -> None:
    """A frozen member keeps its connections, and a lone one serves none: others are asked."""
    with running_cluster(tmp_path, 3) as members:
        gateway = EtcdGateway([member.url for member in members])
        other = EtcdGateway([member.url for member in members[1:]])
        written = [put(gateway, b"/a")]
        with watching(gateway, b"/", written[0]) as watched:
            watched.await_revision(written[-1])
            members[0].freeze()
            written.append(add(other, b"/b"))
            watched.await_revision(written[-1])
            members[0].thaw()
            # No two members can decide; afterwards the watch hears of what they decide.
            members[0].kill()
            members[1].kill()
            members[0].start()
            members[1].start()
            written.append(add(other, b"/c"))
            watched.await_revision(written[-1])
        assert watched.revisions() == written
        gateway.close()
        other.close()


def add(gateway: EtcdGateway, key: bytes) -> int:
    """Make `key`, which does not exist, as soon as the members can decide; returns its revision."""
    while True:
        with suppress(EtcdUnavailable):
            # Of attempts with unknown outcomes one makes the key, and the others change nothing.
            gateway.transact([is_created(key, 0)], [RawPut(key, b"")])
            made = gateway.read(key)
            assert made is not None
            return made.create_revision
