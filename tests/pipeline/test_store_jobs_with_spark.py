"""The jobs on stores with a real Spark: tasks reach the workers, and results come back."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import warren
from tests.support.stores.stopped_node import MESSAGES, change
from tests.support.stores.stopped_node_fixtures import data, original, store
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.backups.job import backup
from warrenmq.pipeline.backups.restore_job import restore
from warrenmq.pipeline.verify_job import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["data", "original", "store"]

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(300)]


def test_backup_verify_restore(spark: "SparkSession", original: Path, tmp_path: Path) -> None:
    assert backup(original, tmp_path / "backup", spark=spark).messages == MESSAGES
    assert verify(original, spark=spark).clean
    result = restore(tmp_path / "backup", tmp_path / "data", spark=spark)
    assert result.messages == MESSAGES and result.shared_contents > 0
    check = check_directory(tmp_path / "data")
    assert check.is_clean and check.messages == MESSAGES
    next((tmp_path / "backup/data").iterdir()).write_bytes(b"noise")
    with pytest.raises(ToolError, match="the backup is damaged"):
        restore(tmp_path / "backup", tmp_path / "other", spark=spark)


def test_exit_statuses_and_lines(data: Path, store: Path, tmp_path: Path) -> None:
    """A command that finds damage ends with status 1; one that cannot start with a line and 2."""
    log = min(store.glob("msg_store_persistent/*.wal"), key=lambda path: int(path.stem))
    change(log, lambda raw: raw.__setitem__(300_000, raw[300_000] ^ 1))
    done = warren("pipeline", "rebuild-index", data, tmp_path / "new")
    assert done.returncode == 1 and "1 are known to be lost" in done.stdout
    for arguments in (
        ("backup", tmp_path / "backup"),
        ("backup", tmp_path / "backup", "--data-dir", tmp_path / "nothing"),
        ("restore", tmp_path / "nothing", "--data-dir", tmp_path / "other"),
        ("verify", tmp_path / "nothing"),
        ("import-rabbitmq", tmp_path / "nothing", tmp_path / "other"),
        ("rebuild-index", tmp_path / "nothing", tmp_path / "other"),
    ):
        done = warren("pipeline", *arguments)
        assert done.returncode == 2 and done.stdout == "", done
        assert done.stderr.startswith("warren: ") and done.stderr.count("\n") == 1
