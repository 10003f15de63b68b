"""What `warren pipeline` makes of a job: output, progress, exit status."""

import dataclasses
import json
from collections.abc import Callable

import pytest
import typer

from warren.cli.pipeline import ProgressKind, run_job
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
