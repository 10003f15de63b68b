"""`warren pipeline run FILE`: several jobs in one process, and in one Spark."""

from pathlib import Path

import pytest

from tests.support.command_line import warren
from tests.support.stores.stopped_node import MESSAGES
from tests.support.stores.stopped_node_fixtures import original
from warrenmq.offline.check import check_directory

__all__ = ["original"]

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


@pytest.mark.spark
def test_the_jobs_run_one_after_the_other(original: Path, tmp_path: Path) -> None:
    """Names with blanks are quoted as for a shell; the second job has the Spark of the first."""
    file = tmp_path / "nightly"
    file.write_text(
        f"# every night\n\nbackup '{tmp_path}/a backup' --data-dir {original}\n"
        f"verify {original} # all of it\n"
        f"restore '{tmp_path}/a backup' --data-dir {tmp_path / 'data'} --engine local\n"
    )
    done = warren("pipeline", "run", file)
    assert done.returncode == 0, done.stderr
    places = [line for line in done.stderr.splitlines() if line.startswith(f"{file}, line ")]
    assert places == [
        f"{file}, line 3: backup '{tmp_path}/a backup' --data-dir {original}",
        f"{file}, line 4: verify {original}",
        f"{file}, line 5: restore '{tmp_path}/a backup' --data-dir {tmp_path / 'data'} --engine local",
    ]
    assert f" {MESSAGES} messages," in done.stdout
    assert check_directory(tmp_path / "data").is_clean


def test_a_job_that_fails_is_the_last_one(original: Path, tmp_path: Path) -> None:
    """`--keep-going` does the others, too, and the exit status is the highest one."""
    file = tmp_path / "jobs"
    file.write_text(
        f"verify {tmp_path / 'nothing'} --engine local\nverify {original} --engine local\n"
    )
    done = warren("pipeline", "run", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "line 1: verify" in done.stderr and "line 2" not in done.stderr
    done = warren("pipeline", "run", file, "--keep-going")
    assert done.returncode == 2 and f" {MESSAGES} messages," in done.stdout


@pytest.mark.parametrize(
    "text, reason",
    [
        ("verify x\nverfy y\n", ", line 2: No such command 'verfy'."),
        ("verify x\nverify 'y\n", ", line 2: No closing quotation"),
        ("verify\n", ", line 1: Missing argument 'DIR'."),
        ("schedule list\n", ", line 1: 'schedule' is no job"),
        ("run jobs\n", ", line 1: 'run' is no job"),
        ("# nothing\n", " has no job"),
    ],
)
def test_a_file_is_checked_before_its_first_job(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    file.write_text(text)
    done = warren("pipeline", "run", file)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"warren: {file}{reason}\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = warren("pipeline", "run", tmp_path / "jobs")
    assert done.returncode == 2
    assert done.stderr == (f"warren: [Errno 2] No such file or directory: '{tmp_path / 'jobs'}'\n")
