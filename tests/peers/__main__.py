"""Runs the test suites of AMQP clients against warren and against RabbitMQ, and compares them.

    make peers PEERS=DIRECTORY
    python -m tests.peers DIRECTORY [--suite NAME]... [--cluster] [--out DIRECTORY]

DIRECTORY holds checkouts of the clients under the names of `suites.py`; a suite without one is left
out. Each run has a broker, a directory and a network namespace of its own. Below `--out` stay the
output of each run, `differences.txt` and `differences.json`.

Exit status: 0 when no test fails on warren alone, 1 when one does or a suite wrote no results, 2
when nothing can run.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.brokers import rabbitmq_server, rabbitmq_version
from tests.peers.differences import SuiteReport, compare, table
from tests.peers.namespace import inside, why_not
from tests.peers.outcomes import read_outcomes
from tests.peers.run import RESULTS
from tests.peers.suites import SUITES, Suite

ROOT: Final = Path(__file__).parent.parent.parent
_UNUSABLE: Final = 2


class SetupError(Exception):
    """What a suite needs cannot be installed; the text says why."""


def main(arguments: list[str]) -> int:
    """Run the suites; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("directory", type=Path, help="the directory of the checkouts")
    names = [suite.name for suite in SUITES]
    parser.add_argument("--suite", action="append", choices=names, help="only this suite")
    parser.add_argument(
        "--cluster", action="store_true", help="warren is a cluster whose queues are elsewhere"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/peers")
    options = parser.parse_args(arguments)
    reason = why_not() or ("" if rabbitmq_server() else "rabbitmq-server is not installed")
    if reason:
        print(reason, file=sys.stderr)
        return _UNUSABLE
    chosen = [suite for suite in SUITES if not options.suite or suite.name in options.suite]
    found = [suite for suite in chosen if (options.directory / suite.checkout).is_dir()]
    if not found:
        looked_for = sorted({suite.checkout for suite in chosen})
        print(f"{options.directory} has none of {', '.join(looked_for)}", file=sys.stderr)
        return _UNUSABLE
    out = options.out.absolute()
    warren = "cluster" if options.cluster else "warren"
    reports = [_report(suite, options.directory.absolute(), out, warren) for suite in found]
    text = f"RabbitMQ {rabbitmq_version()} and warren\n{table(reports)}"
    print(text)
    (out / "differences.txt").write_text(text + "\n")
    (out / "differences.json").write_text(
        json.dumps([report.as_json() for report in reports], indent=1) + "\n"
    )
    return int(any(report.only_warren_fails or report.reason for report in reports))


def _report(suite: Suite, checkouts: Path, out: Path, warren: str) -> SuiteReport:
    """Run one suite against both brokers; `warren` is the kind of warren's."""
    checkout = checkouts / suite.checkout
    version = _version(checkout)
    try:
        environment = _environment(suite, checkout, out / "environments")
    except SetupError as error:
        return SuiteReport(suite.name, version, str(error))
    outcomes = {}
    for broker in ("rabbitmq", warren):
        print(f"peers: {suite.name} {version} against {broker}", file=sys.stderr, flush=True)
        directory = out / suite.name / broker
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.peers.run", suite.name, broker]
        command += [str(checkout), str(directory), environment]
        subprocess.run(inside(command), cwd=ROOT, check=True)
        # The broker's data are large and tell nothing.
        for name in ("data", "mnesia"):
            shutil.rmtree(directory / "broker" / name, ignore_errors=True)
        outcomes[broker] = read_outcomes(directory / RESULTS)
    return compare(suite.name, version, outcomes["rabbitmq"], outcomes[warren])


def _version(checkout: Path) -> str:
    """The commit of a checkout, or "" when it has no history."""
    done = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--tags"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def _environment(suite: Suite, checkout: Path, environments: Path) -> str:
    """The directory of what the suite needs; installs it when its requirements changed.

    Raises SetupError.
    """
    environment = environments / suite.checkout
    mark = environment / "requirements"
    wanted = "\n".join(suite.requirements)
    if mark.exists() and mark.read_text() == wanted:
        return str(environment)
    if suite.is_python:
        uv = str(Path(sys.executable).with_name("uv"))
        _install(
            uv, "venv", "--quiet", "--no-config", "--clear", "--python", sys.executable,
            str(environment),
        )  # fmt: skip
        _install(
            uv, "pip", "install", "--quiet", "--no-config", "--system-certs",
            "--python", str(environment / "bin/python"), *suite.requirements, directory=checkout,
        )  # fmt: skip
    else:
        environment.mkdir(parents=True, exist_ok=True)
        _install(
            "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error",
            "--prefix", str(environment), *suite.requirements, directory=environment,
        )  # fmt: skip
    mark.write_text(wanted)
    return str(environment)


def _install(*command: str, directory: Path | None = None) -> None:
    if shutil.which(command[0]) is None:
        raise SetupError(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise SetupError(f"cannot be installed: {last}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
