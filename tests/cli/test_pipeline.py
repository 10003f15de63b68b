"""What `warren pipeline` makes of a job: output, progress, exit status."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from warren.cli import pipeline_store  # noqa: F401  # it adds its commands
from warren.cli.pipeline import ProgressKind, pipeline, run_job
from warren.pipeline.progress import Progress, Step
from warren.pipeline.result import FOUND_EXIT, JobError, JobResult
from warren.spark import SparkUnavailableError


@dataclasses.dataclass
class CountResult(JobResult):
    found: int

    @property
    def exit_code(self) -> int:
        return FOUND_EXIT if self.found else super().exit_code


def run(work: Callable[[Progress], JobResult], as_json: bool = False, shown: str = "auto") -> int:
    with pytest.raises(typer.Exit) as caught:
        run_job(work, as_json, ProgressKind(shown))
    return caught.value.exit_code


def count(progress: Progress) -> JobResult:
    progress.show(Step("counting", 2, 3, "files"))
    return CountResult(2)


def test_a_result_is_printed_and_its_status_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    """As lines or JSON; without a terminal nothing else."""
    assert run(count) == 1
    assert tuple(capsys.readouterr()) == ("found: 2\n", "")
    assert run(lambda progress: CountResult(0), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"found": 0}


def test_progress_is_shown_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """As events in JSON or a bar, on standard error."""
    run(count, shown="json")
    event = json.loads(capsys.readouterr().err)
    assert (event["name"], event["done"], event["total"]) == ("counting", 2, 3)
    run(count, shown="bar")
    assert "found: 2\n" in capsys.readouterr().out


@pytest.mark.parametrize("failure", [JobError, SparkUnavailableError, OSError])
def test_what_could_not_be_done_is_one_line(
    failure: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    """And status 2."""

    def fail(progress: Progress) -> JobResult:
        raise failure("no Java here")

    assert run(fail, as_json=True) == 2
    assert tuple(capsys.readouterr()) == ("", "warren: no Java here\n")


def test_ctrl_c_and_our_own_mistakes_are_not_findings(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2: 1 says that the job came to its end."""

    def interrupted(progress: Progress) -> JobResult:
        raise KeyboardInterrupt

    def mistaken(progress: Progress) -> JobResult:
        raise KeyError("mistake")

    assert run(interrupted) == 2
    assert capsys.readouterr().err == "warren: interrupted\n"
    assert run(mistaken) == 2
    assert "Traceback" in capsys.readouterr().err


ONE_OF_THEM = "warren: name a directory with --data-dir, or a node with --uri: one of them\n"


@pytest.mark.parametrize("command", ["backup new", "restore old", "report page.html"])
def test_a_directory_or_a_node(command: str) -> None:
    """One of them is named."""
    runner = CliRunner()
    for options in ([], ["--data-dir", "nothing/there", "--uri", "amqp://localhost:1"]):
        found = runner.invoke(pipeline, [*command.split(), *options])
        assert (found.exit_code, found.stderr) == (2, ONE_OF_THEM)


def test_the_environment_names_a_node_when_no_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_URI", "amqp://localhost:1")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(pipeline, ["backup", "new"])
    assert found.exit_code == 2 and "no connection to localhost:1" in found.stderr
    found = CliRunner().invoke(pipeline, ["backup", "new", "--data-dir", "nothing"])
    assert (found.exit_code, found.stderr) == (2, "warren: nothing is not a directory\n")
