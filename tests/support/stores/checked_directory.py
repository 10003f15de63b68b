"""Lets the offline tools look at the directory of a `CheckedStore`."""

from collections.abc import Callable
from pathlib import Path

from tests.support.stores.made_files import STORE_ID
from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.broker.definitions.metadata import Definitions, PutQueue, PutVhost
from warrenmq.offline.check import CheckResult, check_store
from warrenmq.offline.data_directory import VhostDirectory
from warrenmq.store.disk.files import STORE_ID_NAME
from warrenmq.store.disk.local_file_system import LocalFileSystem

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
    (driver.path / STORE_ID_NAME).write_text(STORE_ID.hex() + "\n")
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
