"""`warren pipeline` prints a job's result and progress, and sets its exit status."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.support.etcd import free_ports
from warrenmq.admin.client.client import AdminClient, NodeAddress, NodeUnreachableError
from warrenmq.cli import connection
from warrenmq.cli.job_progress import ProgressKind
from warrenmq.cli.pipeline import replay, store  # noqa: F401  # they add their commands
from warrenmq.cli.pipeline.app import pipeline, run_job
from warrenmq.pipeline.progress import Progress, Step
from warrenmq.pipeline.result import FOUND_EXIT, JobError, JobResult
from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.retry import Retry


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


def test_a_result_is_printed_and_its_status_is_the_exit_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The result is printed as lines or JSON; without a terminal the job prints nothing else."""
    assert run(count) == 1
    assert tuple(capsys.readouterr()) == ("found: 2\n", "")
    assert run(lambda progress: CountResult(0), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"found": 0}


def test_progress_is_shown_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress goes to standard error, as JSON events or as a bar."""
    run(count, shown="json")
    event = json.loads(capsys.readouterr().err)
    assert (event["name"], event["done"], event["total"]) == ("counting", 2, 3)
    run(count, shown="bar")
    assert "found: 2\n" in capsys.readouterr().out


@pytest.mark.parametrize("failure", [JobError, SparkUnavailableError, OSError])
def test_what_could_not_be_done_is_one_line(
    failure: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure is one line on standard error, and status 2."""

    def fail(progress: Progress) -> JobResult:
        raise failure("no Java here")

    assert run(fail, as_json=True) == 2
    assert tuple(capsys.readouterr()) == ("", "warren: no Java here\n")


def test_ctrl_c_and_our_own_mistakes_are_not_findings(capsys: pytest.CaptureFixture[str]) -> None:
    """An interrupt and a mistake in warren give status 2; 1 means that the job finished."""

    def interrupted(progress: Progress) -> JobResult:
        raise KeyboardInterrupt

    def mistaken(progress: Progress) -> JobResult:
        raise KeyError("mistake")

    assert run(interrupted) == 2
    assert capsys.readouterr().err == "warren: interrupted\n"
    assert run(mistaken) == 2
    hint = "(a mistake in warren: --traceback shows where)"
    assert capsys.readouterr().err == f"warren: KeyError: 'mistake' {hint}\n"


@pytest.mark.parametrize("failure", [JobError, KeyError])
def test_the_stack_is_shown_when_it_is_asked_for(
    failure: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --traceback the stack follows the line with the cause."""

    def fail(progress: Progress) -> JobResult:
        raise failure("the cause")

    with pytest.raises(typer.Exit):
        run_job(fail, False, ProgressKind.NONE, traceback=True)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert "the cause" in first and second.startswith("Traceback")


@pytest.mark.parametrize("shown", ["none", "json", "bar"])
def test_what_a_job_waits_for_is_a_line(shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wait is announced in one line, which is JSON when the progress is JSON."""

    def wait(progress: Progress) -> JobResult:
        with Retry("mars:5672", 100, "--retry-timeout") as waiting:
            waiting._announce()
        return CountResult(0)

    assert run(wait, shown=shown) == 0
    text = "waiting for the broker at mars:5672, 0 s"
    line = json.dumps({"notice": text}) if shown == "json" else f"warren: {text}"
    assert line in capsys.readouterr().err.splitlines()


def test_progress_tells_for_how_long_a_job_has_waited(capsys: pytest.CaptureFixture[str]) -> None:
    """Each second a step says which node the job waits for and why, and the next one no longer."""
    address = NodeAddress(f"amqp://127.0.0.1:{free_ports(1)[0]}")
    words = re.compile(
        rf"slowly; waiting for the broker at {address.where}, (\d+) s: "
        rf"no connection to {address.where}: .*refused"
    )
    told: list[int] = []

    def notes() -> list[str]:
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        return [line["note"] for line in lines if "note" in line]

    def wait(progress: Progress) -> JobResult:
        progress.show(Step("publishing", 2, 3, note="slowly"))
        with Retry(address.where, 100, "--retry-timeout", pause_max_s=0.1) as waiting:
            while len(told) < 2:
                try:
                    AdminClient(address, "test")
                except NodeUnreachableError as error:
                    waiting.failed(error)
                found = [words.fullmatch(note) for note in notes()]
                told.extend([int(each[1]) for each in found if each is not None])
        progress.show(Step("the end", 3, 3))
        return CountResult(0)

    assert run(wait, shown="json") == 0
    assert 2 <= told[0] < told[1]
    assert notes()[-1] == ""


ONE_OF_THEM = "warren: name a directory with --data-dir, or a node with --uri: one of them\n"


@pytest.mark.parametrize("command", ["backup new", "restore old", "report page.html"])
def test_a_directory_or_a_node(command: str) -> None:
    """A job needs either a directory or a node: none or both are refused."""
    runner = CliRunner()
    for options in ([], ["--data-dir", "nothing/there", "--uri", "amqp://localhost:1"]):
        found = runner.invoke(pipeline, [*command.split(), *options])
        assert (found.exit_code, found.stderr) == (2, ONE_OF_THEM)


def test_the_environment_names_a_node_when_no_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_URI", "amqp://localhost:1")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(pipeline, ["backup", "new", "--retry-timeout", "0"])
    assert found.exit_code == 2 and "no connection to localhost:1" in found.stderr
    found = CliRunner().invoke(pipeline, ["backup", "new", "--data-dir", "nothing"])
    assert (found.exit_code, found.stderr) == (2, "warren: nothing is not a directory\n")


@pytest.mark.parametrize(
    "command",
    ["archive new --queue q", "replay .", "backup new --uri {}", "report x.html --uri {}"],
)
def test_a_job_waits_for_its_node_as_long_as_it_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job waits for its node for --retry-timeout, before all work; it first names a default."""
    monkeypatch.delenv("WARREN_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "messages.parquet").write_bytes(b"")
    arguments = command.format("amqp://localhost:1").split()
    if "--uri" not in arguments:
        monkeypatch.setattr(connection, "DEFAULT_URI", "amqp://guest:guest@localhost:1/")
    found = CliRunner().invoke(pipeline, [*arguments, "--retry-timeout", "0.01"])
    assert (found.exit_code, found.stdout) == (2, "")
    *before, last = found.stderr.splitlines()
    assert last.startswith(
        "warren: given up after 0.01 s (retry_timeout_s, --retry-timeout): no connection to localhost:1"
    )
    default = "warren: no --uri, --host or WARREN_URI: taking the node at localhost:1, user guest, vhost /"
    assert before == ([] if "--uri" in arguments else [default])
