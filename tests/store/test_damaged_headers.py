"""T23: records behind a damaged file header are still used: their checksums name the file."""

from pathlib import Path

import pytest

from tests.support.stores.store_driver import CheckedStore


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    driver = CheckedStore(tmp_path)
    for _ in range(10):
        driver.publish(20, 1)
        driver.publish(1000, 1, 2)
    driver.commit()
    driver.index(1, 11)
    driver.checkpoint()
    for _ in range(10):
        driver.publish(1000, 1)
    driver.commit()
    driver.close()
    return driver


@pytest.mark.parametrize("at", [0, 8, 12, 30, 36])
@pytest.mark.parametrize(
    "pattern", ["journal/*.wal", "msg_store_persistent/*.rdq", "queues/*/*.idx"]
)
def test_a_flipped_bit_in_a_header_costs_nothing(
    driver: CheckedStore, pattern: str, at: int
) -> None:
    paths = sorted(driver.path.glob(pattern))
    assert paths
    for path in paths:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    report = driver.open()
    assert report.quarantined == [] and report.missing == [] and report.missing_contents == 0
    if not pattern.startswith("queues"):
        known = {path.relative_to(driver.path).as_posix() for path in paths}
        assert report.damaged_headers and set(report.damaged_headers) <= known
    driver.check()


def test_a_copy_under_another_number_is_still_put_aside(driver: CheckedStore) -> None:
    for name, copy in (
        ("journal/1.wal", "journal/9.wal"),
        ("msg_store_persistent/0.rdq", "msg_store_persistent/90.rdq"),
    ):
        (driver.path / copy).write_bytes((driver.path / name).read_bytes())
    report = driver.open()
    assert sorted(line.partition(" ")[0] for line in report.quarantined) == ["9.wal", "90.rdq"]
    driver.check()
