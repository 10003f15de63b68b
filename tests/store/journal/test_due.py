"""A batch is sealed for its size, for its age, or because a client waits (S17-S19)."""

import pytest

from tests.support.stores.dict_disk.journal_driver import JournalDriver, Key
from warrenmq.store.journal.confirm_run import ConfirmRun, ConfirmWaiter
from warrenmq.store.journal.journal import BUFFER_BYTES, FLUSH_INTERVAL_MS

# Bytes that the journal adds to the content of a position when it measures the buffer.
POSITION_BYTES = 64


@pytest.fixture
def driver() -> JournalDriver:
    return JournalDriver(1 << 30)


def publish_bytes(driver: JournalDriver, size: int) -> Key:
    """Publish one message that takes `size` bytes of the buffer."""
    before = driver.journal.pending_bytes
    (key,) = driver.publish(0, [1])
    overhead = driver.journal.pending_bytes - before
    driver.settle(key)
    assert driver.journal.pending_bytes == before
    (key,) = driver.publish(size - overhead, [1])
    return key


def test_an_empty_journal_is_never_due(driver: JournalDriver) -> None:
    assert not driver.journal.is_due(driver.now_ms + 1_000_000)


def test_s17_a_full_buffer_is_due_at_once(driver: JournalDriver) -> None:
    """A buffer one byte smaller waits for its age; a settled message leaves the buffer."""
    journal = driver.journal
    key = publish_bytes(driver, BUFFER_BYTES - 200)
    publish_bytes(driver, 199)
    assert journal.pending_bytes == BUFFER_BYTES - 1
    assert not journal.is_due(driver.now_ms)
    driver.publish(0, [1])
    assert journal.is_due(driver.now_ms)
    driver.settle(key)
    assert not journal.is_due(driver.now_ms)


def test_s18_the_oldest_entry_waits_for_25_ms(driver: JournalDriver) -> None:
    """Later entries do not delay the oldest; the next batch begins a new wait."""
    journal = driver.journal
    driver.publish(10, [1])
    oldest_ms = driver.now_ms
    driver.publish(10, [2])
    assert not journal.is_due(oldest_ms + FLUSH_INTERVAL_MS - 1)
    assert journal.is_due(oldest_ms + FLUSH_INTERVAL_MS)
    driver.now_ms = oldest_ms + FLUSH_INTERVAL_MS
    driver.commit()
    assert not journal.is_due(driver.now_ms + 1_000_000)
    driver.publish(10, [1])
    assert not journal.is_due(driver.now_ms + FLUSH_INTERVAL_MS - 1)
    assert journal.is_due(driver.now_ms + FLUSH_INTERVAL_MS)


def test_s18_an_ack_waits_as_long_as_a_publish(driver: JournalDriver) -> None:
    (key,) = driver.publish(10, [1])
    driver.commit()
    driver.now_ms += 1_000
    driver.settle(key)
    assert not driver.journal.is_due(driver.now_ms + FLUSH_INTERVAL_MS - 1)
    assert driver.journal.is_due(driver.now_ms + FLUSH_INTERVAL_MS)


def test_s19_nobody_who_waits_waits_for_the_tick(driver: JournalDriver) -> None:
    driver.publish(10, [1])
    assert not driver.journal.is_due(driver.now_ms)
    driver.journal.batch.runs.append(ConfirmRun(ConfirmWaiter(), 1, 1))
    assert driver.journal.is_due(driver.now_ms)


def test_s19_an_idle_node_keeps_back_what_follows_a_write_closely(driver: JournalDriver) -> None:
    journal = driver.journal
    driver.publish(10, [1])
    assert journal.is_due(driver.now_ms, is_idle=True)
    driver.commit()
    written_ms = driver.now_ms
    driver.now_ms += 1
    driver.publish(10, [1])
    assert not journal.is_due(written_ms + FLUSH_INTERVAL_MS - 1, is_idle=True)
    assert journal.is_due(written_ms + FLUSH_INTERVAL_MS, is_idle=True)


def test_s19_what_was_settled_unwritten_keeps_nothing_back(driver: JournalDriver) -> None:
    # The first batch writes the head of the file.
    driver.publish(10, [1])
    driver.commit()
    driver.now_ms += 1_000
    (key,) = driver.publish(10, [1])
    driver.settle(key)
    driver.commit()
    driver.publish(10, [1])
    assert driver.journal.is_due(driver.now_ms, is_idle=True)


def test_s19_an_ack_alone_waits_although_the_node_is_idle(driver: JournalDriver) -> None:
    (key,) = driver.publish(10, [1])
    driver.commit()
    driver.now_ms += 1_000
    driver.settle(key)
    assert not driver.journal.is_due(driver.now_ms + FLUSH_INTERVAL_MS - 1, is_idle=True)


def test_a_batch_counts_what_was_settled_before_its_seal(driver: JournalDriver) -> None:
    keys = [driver.publish(10, [1])[0] for _ in range(5)]
    for key in keys[1:4]:
        driver.settle(key)
    driver.seal()
    flight = driver.in_flight
    assert flight is not None
    assert (flight.batch.settled_count, len(flight.batch.positions)) == (3, 2)
