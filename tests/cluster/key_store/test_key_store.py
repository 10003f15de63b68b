"""The key-value store of one machine: its file, faults of its disk, leases, and who may use it."""

import asyncio
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.key_store import served_key_store
from warrenmq.cluster.key_store import store
from warrenmq.cluster.key_store.disk import KeyStoreError, KeyStoreFile
from warrenmq.cluster.key_store.server import USER, KeyStoreServer
from warrenmq.cluster.metadata.endpoints import Credentials
from warrenmq.cluster.metadata.errors import Compacted, EtcdRefused, EtcdUnavailable
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import Event, RawDelete, RawPut
from warrenmq.cluster.metadata.watching import StopSignal


def test_answered_transactions_are_in_a_copy_of_the_file(tmp_path: Path) -> None:
    """A copy of the files, as the disk has them now, is the store; leases last their time anew."""
    path = tmp_path / "keys.sqlite"
    with served_key_store(path) as served:
        gateway = served.gateway()
        lease = gateway.grant(30)
        gateway.transact([], [RawPut(b"/a", b"1"), RawPut(b"/b", b"2", lease)])
        gateway.transact([], [RawPut(b"/a", b"3"), RawPut(b"/c", b"")])
        last = gateway.transact([], [RawDelete(b"/c")]).revision
        found = gateway.read_range(b"/")
        gateway.close()
        (tmp_path / "crashed").mkdir()
        for each in tmp_path.glob("keys.sqlite*"):
            shutil.copy(each, tmp_path / "crashed")
    with served_key_store(tmp_path / "crashed" / "keys.sqlite") as served:
        gateway = served.gateway()
        assert gateway.read_range(b"/") == found
        assert gateway.revision(b"/") == last
        with pytest.raises(Compacted):
            gateway.watch(b"/", last, lambda revision, events: None, StopSignal())
        assert gateway.keep_alive(lease) == 30
        gateway.revoke(lease)
        assert [each.key for each in gateway.read_range(b"/")[0]] == [b"/a"]
        gateway.close()


def test_what_the_disk_refuses_nobody_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed write the store is as the disk has it, and goes on; watches go on, too."""
    fails = threading.Event()
    write = KeyStoreFile.write

    def failing(self: KeyStoreFile, writes: list[store.Write], revision: int) -> None:
        if fails.is_set():
            raise KeyStoreError("the disk is full")
        write(self, writes, revision)

    monkeypatch.setattr(KeyStoreFile, "write", failing)
    told: list[Event] = []
    stop = StopSignal()
    with served_key_store(tmp_path / "keys.sqlite") as served:
        gateway = served.gateway()
        first = gateway.transact([], [RawPut(b"/a", b"1")]).revision
        watching = threading.Thread(
            target=gateway.watch,
            args=(b"/", first, lambda revision, events: told.extend(events), stop),
        )
        watching.start()
        eventually(lambda: len(told) == 1, "the watch stands")
        fails.set()
        with pytest.raises(EtcdUnavailable, match="the disk is full") as failed:
            gateway.transact([], [RawPut(b"/a", b"2")])
        assert failed.value.is_outcome_unknown
        fails.clear()
        assert gateway.read(b"/a", first) == told[0].kv == gateway.read(b"/a")
        gateway.transact([], [RawPut(b"/a", b"3")])
        eventually(lambda: len(told) == 2, "the watch goes on")
        assert told[1].kv.value == b"3"
        stop.set()
        watching.join()
        gateway.close()


def test_lease_without_renewals_ends_with_its_keys(tmp_path: Path) -> None:
    with served_key_store(tmp_path / "keys.sqlite") as served:
        gateway = served.gateway()
        lease = gateway.grant(1)
        gateway.transact([], [RawPut(b"/a", b"", lease)])
        eventually(lambda: gateway.read(b"/a") is None, "the key has gone with its lease")
        assert gateway.keep_alive(lease) == 0
        gateway.close()


def test_lease_outlives_a_standstill_of_the_store() -> None:
    """Nobody can renew a lease while the process of the store stands still."""
    kept = store.KeyStore(0, [], [], 0.0)
    lease = kept.grant(10, 0.0)
    kept.extend(20.0)
    kept.expire(29.0)
    assert kept.keep_alive(lease, 29.0) == 10
    kept.expire(39.0)
    assert kept.keep_alive(lease, 39.0) == 0


def test_old_revisions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HISTORY_EVENTS", 3)
    kept = store.KeyStore(0, [], [], 0.0)
    for number in range(5):
        kept.transact([], [RawPut(b"a", b"%d" % number)], [])
    assert [each.value for each in kept.read_range(b"a", b"", 2)] == [b"1"]
    with pytest.raises(store.TooOld):
        kept.read_range(b"a", b"", 1)
    assert [each[0].kv.value for each in kept.events_since(b"a", b"", 3, 5)] == [b"2", b"3", b"4"]
    with pytest.raises(store.TooOld):
        kept.events_since(b"a", b"", 2, 5)


def test_nobody_gets_in_without_the_password(tmp_path: Path) -> None:
    with served_key_store(tmp_path / "keys.sqlite") as served:
        for credentials in (None, Credentials(USER, "guest")):
            stranger = EtcdGateway([served.url], credentials)
            with pytest.raises(EtcdRefused):
                stranger.read_range(b"/")
            with pytest.raises(EtcdRefused):
                stranger.transact([], [RawPut(b"/a", bytes(100_000))])
            stranger.close()
        files = list(tmp_path.glob("keys.sqlite*"))
        assert files and not any(each.stat().st_mode & 0o077 for each in files)


def test_file_that_is_no_store_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "keys.sqlite"
    path.write_bytes(b"nonsense " * 1000)
    with pytest.raises(KeyStoreError, match=r"^[^\n]*keys.sqlite[^\n]*$"):
        KeyStoreFile(path)
    path.unlink()
    KeyStoreFile(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(KeyStoreError, match="has format 2; this warren reads 1"):
        KeyStoreFile(path)


def test_frozen_client_does_not_hold_up_others(tmp_path: Path) -> None:
    """Strangers that send half a request, or nonsense, cost their own connection."""

    async def ask() -> None:
        server = KeyStoreServer(KeyStoreFile(tmp_path / "keys.sqlite"))
        port = int((await server.start()).rpartition(":")[2])
        half = await asyncio.open_connection("127.0.0.1", port)
        half[1].write(b"POST /v3/kv/range HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        nonsense = await asyncio.open_connection("127.0.0.1", port)
        nonsense[1].write(b"\0" * 100_000)
        assert await nonsense[0].read() == b""
        unknown = await asyncio.open_connection("127.0.0.1", port)
        unknown[1].write(b"POST /v3/kv/range HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert (await unknown[0].readline()).startswith(b"HTTP/1.1 401")
        began_s = time.monotonic()
        await server.stop()
        assert time.monotonic() - began_s < 60
        for _, writer in (half, nonsense, unknown):
            writer.close()

    asyncio.run(ask())
