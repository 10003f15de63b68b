"""The demo as a user runs it reports right, ends right, and leaves no process and no file behind.

Each run gets a temporary directory, a home and a working directory of its own, all of which must be
empty afterwards. The tests recognise its processes by the TMPDIR that they inherited.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import IGNORING_INTERRUPTS
from warrenmq.spark.local import class_archive

ROOT = Path(__file__).resolve().parent.parent.parent
SPARK_TIMEOUT_S = 600
SMALL = ("--files", "300")

pytestmark = pytest.mark.timeout(SPARK_TIMEOUT_S + 60)

# A program that runs the demo after `{damage}`, code that replaces parts of it.
DAMAGED_DEMO = """
import sys
from demo import __main__, broker
{damage}
sys.exit(__main__.main(["--files", "300"]))
"""


class DemoRun:
    """One run of `python ARGUMENTS` in directories of its own below `world`."""

    def __init__(self, world: Path) -> None:
        self.world = world
        for name in ("tmp", "home", "cwd"):
            (world / name).mkdir()
        self.process: subprocess.Popen[str] | None = None
        self.output = ""

    def start(
        self,
        *arguments: str,
        variables: dict[str, str] | None = None,
        ignores_interrupts: bool = False,
    ) -> None:
        """Start the run and return at once.

        `ignores_interrupts`: SIGINT is ignored at the start, as in a shell's background jobs.
        """
        given = [
            os.path.abspath(path)
            for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if path
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *given]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.world / "tmp"),
            "HOME": str(self.world / "home"),
            # Else Spark leaves a process behind that makes the archive of its classes.
            class_archive.SWITCH: class_archive.OFF,
            "COLUMNS": "200",
        }
        self.process = subprocess.Popen(
            [*(IGNORING_INTERRUPTS if ignores_interrupts else ()), sys.executable, *arguments],
            cwd=self.world / "cwd",
            env=environment | (variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> int:
        """Wait for the end; return the exit status. `output` has each run of spaces made one."""
        assert self.process is not None
        text, _ = self.process.communicate(timeout=SPARK_TIMEOUT_S)
        self.output = re.sub(r"\s+", " ", text)
        return self.process.returncode

    def left_processes(self) -> list[psutil.Process]:
        """All living processes of this run."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TMPDIR", "").startswith(str(self.world)):
                    found.append(process)
        return found

    def has_process(self, word: str) -> bool:
        """Whether a living process of this run has `word` as a word of its command line."""
        for process in self.left_processes():
            with suppress(psutil.Error):
                if word in process.cmdline():
                    return True
        return False

    def left_files(self) -> list[Path]:
        """All files and directories that the run left in its directories."""
        return [path for path in self.world.rglob("*") if path.parent != self.world]


@pytest.fixture
def demo() -> Iterator[DemoRun]:
    # Spark makes a socket in its directory; the names of pytest's directories are too long for it.
    with tempfile.TemporaryDirectory(prefix="demo-test-") as world:
        run = DemoRun(Path(world))
        yield run
        # A worker ends a moment after the program that it worked for.
        _, left = psutil.wait_procs(run.left_processes(), 20)
        commands = [process.cmdline() for process in left]
        for process in left:
            process.kill()
        if run.process is not None:
            run.process.wait()
        assert commands == []
        assert run.left_files() == []


def require_java() -> None:
    from warrenmq.spark import SparkUnavailableError
    from warrenmq.spark.local.java import require_spark

    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern!r} in: {text}"
    return int(found[1].replace(",", ""))


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.slow
def test_everything_is_proven(demo: DemoRun) -> None:
    require_java()
    demo.start("-m", "demo", *SMALL)
    assert demo.finish() == 0, demo.output
    assert "✗" not in demo.output
    assert demo.output.count("✓") == 11
    assert "All 11 checks passed" in demo.output
    confirmed = number(r"([\d,]+) of 300 messages were confirmed", demo.output)
    assert 150 <= confirmed < 300
    twice = number(r"confirmed: (\d+) are there twice", demo.output)
    in_parquet = number(r"exactly once \(([\d,]+) rows", demo.output)
    consumed = number(r"pika consumed exactly the ([\d,]+) messages", demo.output)
    reported = number(r"saw exactly the ([\d,]+) messages", demo.output)
    assert in_parquet + consumed + reported == 300 + twice
    assert 0 < number(r"inside a batch, with ([\d,]+) of", demo.output) < in_parquet
    # The last row of the table: Spark counts as many messages as it reads.
    assert number(r"│ all │ ([\d,]+) │", demo.output) == reported


@pytest.mark.kill
def test_without_java_everything_but_spark_runs(demo: DemoRun) -> None:
    demo.start("-m", "demo", *SMALL, variables={"JAVA_HOME": "/nonexistent"})
    assert demo.finish() == 0, demo.output
    assert (
        "Left out, the Spark parts: JAVA_HOME is set, but there is no /nonexistent/bin/java"
        in demo.output
    )
    assert "All 9 checks passed" in demo.output
    consumed = re.findall(r"pika consumed exactly the ([\d,]+) messages", demo.output)
    twice = number(r"confirmed: (\d+) are there twice", demo.output)
    assert sum(int(count) for count in consumed) == 300 + twice


@pytest.mark.kill
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        pytest.param(
            """
import shutil
def start(self, original=broker.Broker.start):
    shutil.rmtree(self._processes.directory / "data" / "msg_stores", ignore_errors=True)
    return original(self)
broker.Broker.start = start
""",
            "of the confirmed messages were missing",
            id="lost",
        ),
        pytest.param(
            """
from demo import reading
def is_as_published(file, method, properties, body, original=reading._is_as_published):
    return original(file, method, properties, body + b"x" if file.number == 7 else body)
reading._is_as_published = is_as_published
""",
            "damaged",
            id="changed",
        ),
    ],
)
def test_what_is_lost_or_changed_is_noticed(demo: DemoRun, damage: str, complaint: str) -> None:
    demo.start("-c", DAMAGED_DEMO.format(damage=damage), variables={"JAVA_HOME": "/nonexistent"})
    assert demo.finish() == 1, demo.output
    assert complaint in demo.output
    assert "✗" in demo.output
    assert "checks FAILED" in demo.output


def test_a_broker_that_does_not_start_is_said_with_its_last_words(demo: DemoRun) -> None:
    damage = """
def start(self, module, *arguments, original=broker.Processes.start, **more):
    return original(self, module, *arguments, "--set", "no_such_key=1", **more)
broker.Processes.start = start
"""
    demo.start("-c", DAMAGED_DEMO.format(damage=damage), variables={"JAVA_HOME": "/nonexistent"})
    assert demo.finish() == 1
    assert "demo: the broker did not start" in demo.output
    assert "no_such_key" in demo.output
    assert "Traceback" not in demo.output


def test_a_library_that_cannot_be_read_is_an_error(demo: DemoRun) -> None:
    damage = """
import sysconfig
sysconfig.get_path = lambda name: "/nonexistent/python"
"""
    demo.start("-c", DAMAGED_DEMO.format(damage=damage), variables={"JAVA_HOME": "/nonexistent"})
    assert demo.finish() == 1
    assert (
        "there is no standard library to publish: /nonexistent/python is not a directory"
        in demo.output
    )
    assert "Traceback" not in demo.output


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_takes_everything_down(demo: DemoRun, signal_number: signal.Signals) -> None:
    """SIGINT and SIGTERM stop every process, even when SIGINT is ignored at the start."""
    require_java()
    demo.start("-m", "demo", *SMALL, ignores_interrupts=signal_number == signal.SIGINT)
    assert demo.process is not None
    deadline = time.monotonic() + SPARK_TIMEOUT_S
    # Spark's Python workers start last: then broker, driver and JVM run, in sessions and process
    # groups of their own.
    while not demo.has_process("pyspark.daemon"):
        assert time.monotonic() < deadline and demo.process.poll() is None
        time.sleep(0.1)
    demo.process.send_signal(signal_number)
    assert demo.finish() == 130, demo.output
    assert "demo: interrupted" in demo.output
