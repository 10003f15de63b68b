"""The epochs of a queue survive crashes, failed writes, checkpoints and the tools."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.store.test_store_writer import definitions
from tests.support.brokers.process import BrokerProcess
from tests.support.stores.made_files import STORE_ID, message_of
from tests.support.stores.stopped_node import change, fingerprint
from tests.support.stores.store_driver import StoreDriver
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError, opened
from warrenmq.offline.salvage import salvage
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.snapshot import VhostSnapshot
from warrenmq.store.model.epochs import Epochs, add_epoch
from warrenmq.store.records.record import EPOCH, FORMAT_VERSION
from warrenmq.store.settings import StoreSettings
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import COLUMNS, JOURNAL, MESSAGES

VHOST_PATH = Path("msg_stores/vhosts/1")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[StoreDriver]:
    made = StoreDriver(tmp_path, StoreSettings(1 << 20))
    made.add_queue(1)
    yield made
    made.close()


def publish(driver: StoreDriver, count: int) -> None:
    for _ in range(count):
        driver.publish_message(message_of(b"x", driver.now_ms), 1)


def take_checkpoint(driver: StoreDriver) -> None:
    before = driver.store.checkpoints.count
    driver.store.checkpoints.want()
    driver.commit()
    assert driver.store.checkpoints.count > before


def recovered(driver: StoreDriver) -> Epochs:
    """The epochs that a start after a crash finds."""
    driver.reopen()
    return driver.add_queue(1).ledger.epochs


def test_rows_are_added_in_order_and_once() -> None:
    epochs: Epochs = []
    for row in ((4, 10), (7, 30), (5, 20), (4, 99), (7, 99)):
        add_epoch(epochs, *row)
    assert epochs == [(4, 10), (5, 20), (7, 30)]


def test_an_epoch_is_on_disk_with_its_batch(driver: StoreDriver) -> None:
    publish(driver, 2)
    driver.queues[1].begin_epoch(4)
    assert driver.store.journal.is_due(driver.now_ms)
    publish(driver, 1)
    driver.commit()
    assert recovered(driver) == [(4, 3)]


@pytest.mark.parametrize("count", [1, 3])
def test_an_epoch_outlives_the_journal_file_that_it_was_written_to(
    driver: StoreDriver, count: int
) -> None:
    """Only the checkpoints have it then."""
    take_checkpoint(driver)
    for epoch in range(4, 4 + count):
        driver.queues[1].begin_epoch(epoch)
    driver.commit()
    for _ in range(3):
        driver.store.journal.request_file()
        take_checkpoint(driver)
    journal = b"".join(path.read_bytes() for path in Path(f"{driver.disk}/journal").iterdir())
    assert b"WR%c\1" % EPOCH not in journal
    assert recovered(driver) == [(epoch, 1) for epoch in range(4, 4 + count)]


def test_the_epoch_of_a_failed_batch_is_written_again(driver: StoreDriver) -> None:
    driver.queues[1].begin_epoch(4)
    driver.fail(driver.store.journal.seal(), driver.now_ms)
    assert driver.store.journal.is_due(driver.now_ms) and driver.store.journal.has_pending()
    driver.queues[1].begin_epoch(5)
    driver.commit()
    assert recovered(driver) == [(4, 1), (5, 1)]


def test_without_checkpoints_the_highest_epoch_of_the_journal_counts(driver: StoreDriver) -> None:
    publish(driver, 1)
    driver.queues[1].begin_epoch(4)
    driver.commit()
    for _ in range(3):
        driver.store.journal.request_file()
        take_checkpoint(driver)
    driver.queues[1].begin_epoch(6)
    driver.commit()
    for name in ("checkpoint", "checkpoint.previous"):
        Path(f"{driver.disk}/{name}").unlink()
    assert recovered(driver)[-1] == (6, 2)


def test_a_malformed_record_is_damage(driver: StoreDriver) -> None:
    driver.queues[1].begin_epoch(4)
    driver.commit()
    driver.store.journal.writer.raw_record(EPOCH, b"too short", b"")
    publish(driver, 1)
    driver.commit()
    assert recovered(driver) == [(4, 1)]
    assert [damage.reason for damage in driver.replay.damage] == ["malformed record"]


# -- a data directory ------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped node: `q` has 6 messages, has handed out 1, 2 and 5, and began epoch 3 at 4."""
    path = tmp_path / "data"
    (path / VHOST_PATH).mkdir(parents=True)
    metadata = SqliteMetadata(path / "node.sqlite")
    found = definitions(b"q")
    metadata.apply([*found.vhosts, *found.users, *found.permissions, *found.queues])
    metadata.close()
    (path / VHOST_PATH / "store_id").write_text(STORE_ID.hex())
    store = StoreDriver(path / VHOST_PATH, StoreSettings(1 << 20))
    queue = store.add_queue(1)
    publish(store, 3)
    queue.begin_epoch(3)
    publish(store, 3)
    queue.note_delivered(1, 2)
    queue.note_delivered(5, 5)
    store.commit()
    take_checkpoint(store)
    store.store.journal.request_clean_stop()
    store.commit()
    store.close()
    return path


def rows(data: Path, table: str, *columns: str) -> list[tuple[object, ...]]:
    import pyarrow as pa  # an extra

    schema = pa.schema([(name, COLUMNS[table][name]) for name in columns])
    return [
        tuple(row[name] for name in columns)
        for partition in plan(data, table, ReadOptions())
        for batch in read(partition, schema)
        for row in batch.to_pylist()
    ]


def test_tables_know_what_was_handed_out_and_the_records(data: Path) -> None:
    found = rows(data, MESSAGES, "seq", "redelivered")
    assert sorted(found) == [(seq, seq in (1, 2, 5)) for seq in range(1, 7)]
    records = rows(data, JOURNAL, "kind", "queue_id", "first_seq", "last_seq", "crc_ok")
    assert ("epoch", 1, 4, 4, True) in records
    assert ("queue_state", 1, 7, 2, True) in records


def test_tools_find_nothing_strange_and_keep_the_epochs(data: Path, tmp_path: Path) -> None:
    assert check_directory(data).problems == []
    result = salvage(data, tmp_path / "salvaged")
    assert result.losses == []
    assert check_directory(tmp_path / "salvaged").problems == []
    files = LocalFileSystem(tmp_path / "salvaged" / VHOST_PATH)
    try:
        queue = VhostSnapshot(files).queue(1)
    finally:
        files.release()
    assert queue is not None and queue.ledger.epochs == [(3, 4)]
    delivered = [seq for seq in range(1, 7) if queue.ledger.was_delivered(seq)]
    assert delivered == [1, 2, 5]


@pytest.mark.kill
@pytest.mark.parametrize("name", ["checkpoint", "journal/1.wal"])
def test_files_of_a_later_version_are_refused_and_not_touched(
    data: Path, tmp_path: Path, name: str
) -> None:
    def raise_version(header: bytearray) -> None:
        header[8:12] = (FORMAT_VERSION + 1).to_bytes(4, "big")
        header[36:40] = crc32c(bytes(header[:36])).to_bytes(4, "big")

    change(data / VHOST_PATH / name, raise_version)
    node = BrokerProcess(tmp_path)
    (data / "lock").touch()
    before = fingerprint(data)
    assert node.refused() != 0
    later = f"has format version {FORMAT_VERSION + 1}"
    text = f"{later}; this warren reads versions up to {FORMAT_VERSION}"
    assert text in node.log_path.read_text()
    with pytest.raises(ToolError, match=later), opened(data):
        pass
    assert fingerprint(data) == before
