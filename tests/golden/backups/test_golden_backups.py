"""Backups of earlier versions, as files and as Parquet, are restored."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.golden.backups.restoring import COMMANDS, restored
from warrenmq.offline.backup_files import MANIFEST_FORMAT
from warrenmq.pipeline.backups.manifest import FORMAT

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The name of golden backups, and the directory that they are unpacked in."""
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path / "kept", filter="data")
    return request.param.name.partition(".")[0], tmp_path / "kept"


@pytest.mark.kill
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_golden_backup_is_restored(kind: str, backups: tuple[str, Path], tmp_path: Path) -> None:
    name, kept = backups
    expected = json.loads((HERE / f"{name}.json").read_text("utf-8"))[kind]
    assert restored(kind, kept / kind, tmp_path / "node") == expected


def test_there_are_backups_of_every_format(backups: tuple[str, Path]) -> None:
    """A second format needs golden backups of its own, and this test two sets."""
    _, kept = backups
    manifests = [json.loads(path.read_text()) for path in kept.glob("*/manifest.json")]
    assert sorted(found["format"] for found in manifests) == [FORMAT, MANIFEST_FORMAT]
