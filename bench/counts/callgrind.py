"""Counts the instructions of the trace with valgrind's callgrind.

Hardware counters would be faster, but the guests of many hosts have none. Callgrind counts the
instructions of the process, in every library and not in the kernel, and does not notice what else
the machine does. The rest is the same for each run: hash seed, environment, compiled modules in
their caches. Two runs of one build agree within 0.2 %.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.counts.trace import MARK, PARTS
from bench.measure import MeasureError

ROOT: Final = Path(__file__).parent.parent.parent
TIMEOUT_S: Final = 280.0
# Marks of each run of a part.
_MARKS: Final = 3
# The size of the environment and the order of hashes move memory, and with it collisions.
_ENVIRONMENT: Final = {"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def environment_name() -> str:
    """Name of what counts depend on besides the sources: Python, its compiler, the processor."""
    compiler = platform.python_compiler().replace(" ", "-").lower()
    python = f"{platform.python_implementation().lower()}-{platform.python_version()}"
    return f"{python}-{compiler}-{platform.machine()}"


def valgrind() -> str | None:
    """Path of valgrind, or None when it is not installed."""
    return shutil.which("valgrind")


def count_instructions(parts: list[str], keep: Path | None = None) -> dict[str, int]:
    """Instructions for one message, by part. MeasureError when the trace or valgrind fails.

    `keep`: a directory for callgrind's files, which `callgrind_annotate` shows by function.
    """
    tool = valgrind()
    if tool is None:
        raise MeasureError("valgrind is not installed")
    directory = Path(tempfile.mkdtemp(prefix="warren-counts-"))
    files = directory if keep is None else keep
    files.mkdir(parents=True, exist_ok=True)
    try:
        # A run without valgrind leaves every module's byte code in its cache: compiling modules
        # would move the memory of the run that counts.
        _run([], directory / "dry", parts)
        options = [
            "--tool=callgrind", "--quiet", f"--dump-before={MARK}", "--dump-line=no",
            f"--callgrind-out-file={files}/out",
        ]  # fmt: skip
        _run([tool, *options], directory / "wet", parts)
        return _per_message(files, parts)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(prefix: list[str], data: Path, parts: list[str]) -> None:
    data.mkdir()
    command = [*prefix, sys.executable, "-m", "bench.counts.trace", str(data), *parts]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MeasureError(f"the trace is not done after {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise MeasureError(f"the trace failed: {done.stderr.strip()[-2000:]}")


def _per_message(files: Path, parts: list[str]) -> dict[str, int]:
    found = {}
    mark = 0
    for name in parts:
        part = PARTS[name]
        costs = 0
        for _ in range(part.layouts):
            once, twice = (_total(files / f"out.{mark + which}") for which in (2, 3))
            costs += twice - once
            mark += _MARKS
        found[name] = round(costs / part.layouts / part.messages)
    return found


def _total(path: Path) -> int:
    """The count in one of callgrind's files. MeasureError when it has none."""
    if path.is_file():
        with path.open() as lines:
            for line in lines:
                if line.startswith("totals:"):
                    return int(line.split()[1])
    raise MeasureError(f"valgrind has left no count in {path.name}")
