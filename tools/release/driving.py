"""Installs a file of a release in an empty environment, and drives the broker that it brings."""

import json
import re
import subprocess
import time
from pathlib import Path

from tools.release.commands import LOCK, UV, ReleaseError, clean_environment, run

MESSAGES = 1000
# Steps that take longer than this hang.
START_S = 120.0
STOP_S = 60.0
_READY = re.compile(r"warren is ready: amqp=\S*?:(\d+)")
_API_READY = re.compile(r"the HTTP API is ready: (http://\S+/)api/")
# Asks the API of the node with a library of the extra, and loads the data sources for Spark.
_EXTRAS = """
import sys, httpx
import pyspark_warren, pyspark_warren_events, pyspark_warren_metrics, pyspark_warren_store
sources = (pyspark_warren, pyspark_warren_store, pyspark_warren_events, pyspark_warren_metrics)
print(*[source.DefaultSource.name() for source in sources])
reply = httpx.get(sys.argv[1] + "api/overview", auth=("guest", "guest"))
print(reply.status_code, reply.json()["product_version"])
"""


class NoWheelError(ReleaseError):
    """A dependency has no wheel for this Python, and cannot be built."""


def install(python: Path | str, directory: Path, file: Path, extra: str = "") -> Path:
    """Make an environment with `file`, what it depends on, and nothing else; return its programs.

    Dependencies have the versions of the lock. Raises NoWheelError if one has no wheel and cannot
    be built here.
    """
    requirement = f"warrenmq[{extra}] @ {file.as_uri()}" if extra else str(file)
    run(UV, "venv", "--quiet", "--no-config", "--clear", "--python", python, directory)
    try:
        run(
            UV, "pip", "install", "--quiet", "--no-config", "--system-certs",
            "--python", directory / "bin/python", "--constraint", LOCK, requirement,
        )  # fmt: skip
    except ReleaseError as error:
        # uv's words when there is a source distribution only, or nothing for this Python.
        if re.search(r"Failed to build|no (usable )?wheels", str(error)):
            raise NoWheelError(str(error)) from None
        raise
    return directory / "bin"


class DrivenNode:
    """A node of an installed warren, on free loopback ports."""

    def __init__(self, programs: Path, directory: Path, has_api: bool = False) -> None:
        self.programs = programs
        self.directory = directory
        self.has_api = has_api
        self.uri = ""
        self._log = directory / "node.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the node; returns when it is ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        management = "127.0.0.1:0" if self.has_api else "off"
        # Each start begins a log, so that what it says is of this start.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self.programs / "warren"), "server",
                    "--data-dir", str(self.directory / "data"),
                    "--listen", "127.0.0.1:0", "--management", management,
                    "--set", "prometheus.listen=off",
                ],
                cwd=self.directory,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self.uri = f"amqp://guest:guest@127.0.0.1:{self._await_line(_READY)}"

    def api_url(self) -> str:
        """The root of the HTTP API, when it is ready."""
        return self._await_line(_API_READY)

    def _await_line(self, pattern: re.Pattern[str]) -> str:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = pattern.search(self._log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise ReleaseError(f"no line {pattern.pattern!r} came:\n{self._log.read_text()}")

    def kill(self) -> None:
        """End the node with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> int:
        """End the node with SIGTERM; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_S)

    def close(self) -> None:
        """Leave no process behind, whatever has failed."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def perf(self, *options: str) -> dict[str, object]:
        """What `warren perf` reports of persistent messages through the queue `kept`."""
        printed = run(
            self.programs / "warren", "perf", "--json", "--uri", self.uri, "--queue", "kept",
            "--no-auto-delete", "--flag", "persistent", *options,
            cwd=self.directory, timeout_s=START_S,
        )  # fmt: skip
        report: dict[str, object] = json.loads(printed)
        return report


def check_version(programs: Path, version: str, build: str) -> None:
    """Insist that `warren --version` names this version and build."""
    printed = run(programs / "warren", "--version", cwd=programs).strip()
    if printed != f"warren {version} ({build})":
        raise ReleaseError(f"warren --version says {printed!r}, not {version} ({build})")


def drive(programs: Path, directory: Path, version: str, build: str, has_extras: bool) -> None:
    """Publish with confirms, kill the node, start it again, and consume what was confirmed."""
    check_version(programs, version, build)
    node = DrivenNode(programs, directory, has_api=has_extras)
    try:
        node.start()
        published = node.perf("--consumers", "0", "--confirm", "100", "--pmessages", str(MESSAGES))
        _expect("confirmed", published["confirmed"], MESSAGES)
        node.kill()
        node.start()
        received = node.perf("--producers", "0", "--cmessages", str(MESSAGES), "--predeclared")
        _expect("received after a SIGKILL", received["received"], MESSAGES)
        if has_extras:
            printed = run(programs / "python", "-c", _EXTRAS, node.api_url(), cwd=directory)
            wanted = f"warren warren_store warren_events warren_metrics\n200 {version}\n"
            _expect("of the extras", printed, wanted)
        _expect("exit status", node.stop(), 0)
    finally:
        node.close()


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise ReleaseError(f"{what}: {found!r} instead of {wanted!r}")
