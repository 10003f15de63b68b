"""Each kind of crash leaves the right part of a transaction of the simulated definitions."""

import errno
from random import Random

import pytest

from simulator.simulated.file_system import KILL, POWER, Crash, Fault, SimulatedFileSystem
from simulator.simulated.metadata import SimulatedMetadata
from warrenmq.broker.definitions.metadata import MetadataError, PutQueue


def put(queue_id: int) -> PutQueue:
    return PutQueue(b"/", queue_id, b"q%d" % queue_id, True, False, b"")


def metadata_with(*faults: Fault) -> tuple[SimulatedFileSystem, SimulatedMetadata]:
    files = SimulatedFileSystem()
    metadata = SimulatedMetadata(files)
    metadata.apply([put(1)])
    files.faults = list(faults)
    return files, metadata


def test_a_transaction_that_returned_is_there_after_a_power_failure() -> None:
    _, metadata = metadata_with()
    metadata.crash(Random(1), POWER)
    assert metadata.queue_ids() == {1}


def test_a_transaction_that_was_not_written_never_is() -> None:
    _, metadata = metadata_with(Fault(("metadata",), 0, errno.EIO))
    with pytest.raises(MetadataError):
        metadata.apply([put(2), put(3)])
    metadata.crash(Random(1), KILL)
    assert metadata.queue_ids() == {1}


def test_a_transaction_whose_sync_failed_is_none_until_a_crash_finds_it() -> None:
    found = set()
    for seed in range(20):
        _, metadata = metadata_with(Fault(("metadata_sync",), 0, errno.EIO))
        with pytest.raises(MetadataError):
            metadata.apply([put(2), put(3)])
        assert metadata.queue_ids() == {1}
        metadata.crash(Random(seed), POWER)
        found.add(frozenset(metadata.queue_ids()))
    # The transaction is there as a whole or not at all.
    assert found == {frozenset({1}), frozenset({1, 2, 3})}


def test_the_next_transaction_overwrites_the_one_whose_sync_failed() -> None:
    _, metadata = metadata_with(Fault(("metadata_sync",), 0, errno.EIO))
    with pytest.raises(MetadataError):
        metadata.apply([put(2)])
    metadata.apply([put(3)])
    metadata.crash(Random(1), KILL)
    assert metadata.queue_ids() == {1, 3}


def test_a_kill_between_write_and_sync_leaves_the_transaction() -> None:
    files, metadata = metadata_with()
    files.crash_after = 1
    with pytest.raises(Crash):
        metadata.apply([put(2)])
    metadata.crash(Random(1), KILL)
    assert metadata.queue_ids() == {1, 2}


def test_a_full_disk_takes_no_transaction() -> None:
    files, metadata = metadata_with()
    files.capacity = 10
    with pytest.raises(MetadataError) as raised:
        metadata.apply([put(2)])
    assert raised.value.may_be_full
    assert metadata.queue_ids() == {1}
