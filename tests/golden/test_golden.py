"""Data directories of earlier formats give the same content, offline and through a node."""

import json
from pathlib import Path

import pytest

from tests.golden.reading import read_offline, read_online, unpack

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("*.tar.xz"))

pytestmark = pytest.mark.kill


@pytest.mark.parametrize(
    "archive", ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES]
)
def test_a_golden_directory_is_read_as_it_was_written(archive: Path, tmp_path: Path) -> None:
    name, how = archive.name.removesuffix(".tar.xz").rsplit("-", 1)
    expected = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))[how]
    assert read_offline(unpack(archive, tmp_path)) == expected["offline"]
    online = expected["online"]
    assert read_online(tmp_path, expected["stage"], sorted(online["queues"])) == online
