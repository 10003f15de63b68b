"""Measures the share of the engine's possible faults that the tests notice, by a random sample.

    python -m tests.mutants sample [--seed N] [--count N] [--jobs N] [--out FILE]

Each fault is put into a copy of the sources, and tests run on it, interpreted, those of the same
package first, until one fails (`killed`). A fault that all of `ROUND` let pass is `ALIVE`; some of
these are no faults, since the program does the same with them. `--out` appends each outcome to a
file, a line of JSON each. Faults that are in the file already are not tried again, so a second run
resumes an interrupted one.
"""

import argparse
import json
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.operators import Fault, faults
from tests.mutants.running import ROOT, TESTS_FAILED, copy_sources, run_tests

PACKAGES = ("store", "queues", "broker", "wire")
# A table generates this module; its own tests compare it with the table.
LEFT_OUT = ("wire/methods.py",)
ROUND = ("queues", "store", "broker", "wire", "routing", "protocol", "admin", "simulator")
# The directories of `ROUND` that are near to a package, the nearest first.
NEAR = {
    "store": ("store", "queues", "simulator", "admin", "protocol"),
    "queues": ("queues", "simulator", "admin", "protocol", "store"),
    "broker": ("broker", "protocol", "admin", "simulator"),
    "wire": ("wire", "protocol", "broker"),
}
# Seconds after which tests count as hanging: those of a directory take a third of it at most.
TIMEOUT_S = 150


def all_faults(sources: Path) -> list[Fault]:
    """Every fault of the engine's sources, in a fixed order."""
    found: list[Fault] = []
    for package in PACKAGES:
        for path in sorted((sources / "warrenmq" / package).rglob("*.py")):
            name = path.relative_to(sources / "warrenmq").as_posix()
            if name not in LEFT_OUT:
                found.extend(faults(name, path.read_text(encoding="utf-8")))
    return found


def directories(path: str) -> list[str]:
    """The directories of tests that may notice a fault in `path`, the nearest first."""
    near = NEAR[path.partition("/")[0]]
    return [f"tests/{name}" for name in (*near, *(name for name in ROUND if name not in near))]


# Tests that take long, start processes or kill them run in `make test` only.
QUICK = ("-m", "not slow and not kill and not spark")


def failure(sources: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code and last line for the first failing directory of `tests`, or 0."""
    for directory in tests:
        code, line = run_tests(sources, [directory, *QUICK], TIMEOUT_S)
        if code != 0:
            return code, line
    return 0, ""


def try_fault(sources: Path, fault: Fault) -> dict[str, object]:
    """Run the tests on `sources` with `fault`; the sources are restored afterwards."""
    path = sources / "warrenmq" / fault.path
    text = path.read_text(encoding="utf-8")
    path.write_text(fault.applied_to(text), encoding="utf-8")
    began = time.monotonic()
    try:
        code, line = failure(sources, directories(fault.path))
    finally:
        path.write_text(text, encoding="utf-8")
    # A fault that breaks the import is noticed as well: pytest then ends with another code.
    return asdict(fault) | {
        "is_killed": code != 0,
        "by": line if code == TESTS_FAILED else f"exit code {code}: {line}" if code else "",
        "seconds": round(time.monotonic() - began, 1),
    }


def main(arguments: list[str]) -> int:
    """Draw faults, try them, and print the share of killed ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants sample")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(arguments)
    out: Path | None = options.out
    done = (
        [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    )
    seen = {(one["path"], one["start"], one["old"], one["new"]) for one in done}
    everything = all_faults(ROOT / "src")
    drawn = random.Random(options.seed).sample(everything, options.count)
    print(
        f"{len(everything)} faults are possible, {len(drawn)} are tried, {len(seen)} of them before",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="warren-mutants-") as directory:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(copy_sources(Path(directory) / str(number)))

        code, line = failure(
            copy_sources(Path(directory) / "sound"), [f"tests/{name}" for name in ROUND]
        )
        if code != 0:
            print(f"the tests fail without any fault: {line}", flush=True)
            return 2

        def run(fault: Fault) -> dict[str, object]:
            sources = copies.get()
            try:
                return try_fault(sources, fault)
            finally:
                copies.put(sources)

        left = [
            fault for fault in drawn if (fault.path, fault.start, fault.old, fault.new) not in seen
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            for outcome in pool.map(run, left):
                done.append(outcome)
                verdict = "killed" if outcome["is_killed"] else "ALIVE "
                place = f"{outcome['path']}:{outcome['line']}"
                print(
                    f"{verdict} {place} {outcome['old']!r} -> {outcome['new']!r} {outcome['by']}",
                    flush=True,
                )
                if out:
                    with out.open("a") as file:
                        file.write(json.dumps(outcome) + "\n")
    killed = sum(1 for one in done if one["is_killed"])
    print(f"{killed} of {len(done)} were killed: {100 * killed / max(1, len(done)):.1f} %")
    return 0
