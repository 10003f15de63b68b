"""The way back from an upgrade: a backup keeps the format of its files.

The steps are those of docs/operations/upgrade.md.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.golden.reading import SETTINGS, read_offline, unpack
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren
from warrenmq.store.records.record import FORMAT_VERSION

HERE = Path(__file__).parent
# The earliest golden directory of a format before today's.
NAME, FORMAT = "74f060a", 2
PATTERNS = ("journal/*.wal", "queues/*/*.idx", "checkpoint*", "msg_store_persistent/*")


def versions(data: Path) -> set[int]:
    """The format versions of the files of a store."""
    vhosts = data / "msg_stores" / "vhosts"
    files = [path for pattern in PATTERNS for path in vhosts.glob(f"*/{pattern}")]
    assert files
    return {int.from_bytes(path.read_bytes()[8:12], "big") for path in files}


@pytest.mark.kill
def test_a_backup_from_before_the_upgrade_restores_the_old_format(tmp_path: Path) -> None:
    """A node of the new version has turned the directory over meanwhile, and has used it."""
    expected = json.loads((HERE / f"{NAME}.json").read_text())["stopped"]["offline"]
    data = unpack(HERE / f"{NAME}-stopped.tar.xz", tmp_path)
    kept = tmp_path / "kept"
    assert warren("backup", kept, "--data-dir", data).returncode == 0
    assert versions(kept) == {FORMAT} == versions(data)
    for _ in range(2):
        node = BrokerProcess(tmp_path, *SETTINGS)
        node.start()
        assert node.stop() == 0
    assert FORMAT_VERSION in versions(data)

    shutil.rmtree(data)
    restored = warren("restore", kept, "--data-dir", data)
    assert restored.returncode == 0, restored.stderr
    assert versions(data) == {FORMAT}
    assert read_offline(data) == expected
