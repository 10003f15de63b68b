"""Lets the offline tools look at the directory of a `CheckedStore`."""

from collections.abc import Callable
from pathlib import Path

from tests.support.stores.made_files import STORE_ID
from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.broker.definitions.metadata import Definitions, PutQueue, PutVhost
from warrenmq.offline.check import check_store
from warrenmq.offline.data_directory import VhostDirectory
from warrenmq.offline.problems import CheckResult
from warrenmq.offline.report import VhostReport, report_vhost
from warrenmq.offline.salvage import SalvageResult, VhostSalvage
from warrenmq.offline.store_builder import StoreBuilder
from warrenmq.store.disk.files import STORE_ID_NAME
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.snapshot import VhostSnapshot
from warrenmq.store.settings import StoreSettings

VHOST = PutVhost(b"/", 1)


def definitions() -> Definitions:
    """The definitions of the queues that a `CheckedStore` has."""
    found = Definitions()
    found.vhosts.append(VHOST)
    found.queues += [PutQueue(b"/", number, b"q%d" % number, True, False, b"") for number in QUEUES]
    found.next_queue_id = max(QUEUES) + 1
    return found


def directory_of(path: Path) -> VhostDirectory:
    """The directory as that of a vhost."""
    return VhostDirectory(1, path, VHOST)


def checked(driver: CheckedStore) -> CheckResult:
    """The result of a check of the driver's directory; close the driver first."""
    _write_store_id(driver)
    result = CheckResult()
    files = LocalFileSystem(driver.path)
    try:
        entries = int(driver.settings.segment_entries)
        check_store(files, entries, definitions(), directory_of(driver.path), result)
    finally:
        files.release()
    return result


def edit(path: Path, change: Callable[[bytearray], object]) -> None:
    """Edit the bytes of a file in place."""
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def salvaged(driver: CheckedStore) -> tuple[dict[int, dict[int, bytes]], SalvageResult]:
    """Bodies by queue id and seq id that salvage finds in the driver's directory, and its result.

    Close the driver first. The new store must check clean.
    """
    result = SalvageResult()
    _write_store_id(driver)
    target = driver.path.with_name("salvaged")
    target.mkdir()
    entries = int(driver.settings.segment_entries)
    files, target_files = LocalFileSystem(driver.path), LocalFileSystem(target)
    try:
        snapshot = VhostSnapshot(files, entries)
        work = VhostSalvage(
            definitions(), directory_of(driver.path), VHOST, snapshot, result, lambda size: None
        )
        settings = StoreSettings(1 << 20, segment_entries=entries)
        work.run(StoreBuilder(target_files, settings))
        known = definitions()
        known.queues += [
            PutQueue(made.vhost, made.id, made.name, True, False, b"")
            for made in result.made_queues
        ]
        check = CheckResult()
        check_store(target_files, entries, known, directory_of(target), check)
        assert check.problems == [] and check.messages == result.messages
        return bodies_in(VhostSnapshot(target_files, entries)), result
    finally:
        files.release()
        target_files.release()


def bodies_in(snapshot: VhostSnapshot) -> dict[int, dict[int, bytes]]:
    """The bodies of all queues, by queue id and seq id."""
    found: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
    for queue in snapshot.queues():
        bodies = found.setdefault(int(queue.ledger.queue_id), {})
        for position in snapshot.positions(queue):
            message = snapshot.message(position)
            assert message is not None
            bodies[int(position.seq)] = message.body
    return found


def reported(driver: CheckedStore) -> VhostReport:
    """The report on the driver's directory; close the driver first."""
    _write_store_id(driver)
    found = VhostReport(1, "/")
    files = LocalFileSystem(driver.path)
    try:
        snapshot = VhostSnapshot(files, int(driver.settings.segment_entries))
        report_vhost(definitions(), directory_of(driver.path), snapshot, found, lambda size: None)
    finally:
        files.release()
    return found


def _write_store_id(driver: CheckedStore) -> None:
    (driver.path / STORE_ID_NAME).write_text(STORE_ID.hex() + "\n")
