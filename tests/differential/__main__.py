"""Compares warren with RabbitMQ by many sequences of steps.

    python -m tests.differential [--sequences N] [--seed SEED] [--first NUMBER]

The sequence NUMBER of a SEED is always the same one. The exit status is 1 when a sequence differs
and neither chance nor an intended difference explains that.
"""

import argparse
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.brokers import rabbitmq_server
from tests.differential.brokers import Rabbitmq, Warren
from tests.differential.comparison import Comparison, Report

PROGRESS_S = 30.0
DIFFERENCES_MAX = 20


class FaultsOnly(logging.StreamHandler):  # type: ignore[type-arg]  # its stream is standard error
    """Shows errors with a traceback: warren logs each refusal as well, and most are intended."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            super().emit(record)


def main(arguments: list[str]) -> int:
    """Run the sequences; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("--sequences", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", default=time.strftime("%Y-%m-%d"), help="any text")
    parser.add_argument("--first", type=int, default=0, help="number of the first sequence")
    options = parser.parse_args(arguments)
    logging.basicConfig(handlers=[FaultsOnly()], format="%(message)s")
    if rabbitmq_server() is None:
        print("rabbitmq-server is not installed", file=sys.stderr)
        return 1
    # RabbitMQ has to be stopped, whatever ends the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as directory:
        rabbitmq = Rabbitmq(Path(directory))
        try:
            report = run(rabbitmq, options.seed, options.first, options.sequences)
        finally:
            rabbitmq.stop()
    return 1 if report.differences else 0


def run(rabbitmq: Rabbitmq, seed: str, first: int, sequences: int) -> Report:
    """Compare the sequences, and print each difference as it is found."""
    comparison = Comparison(Warren(), rabbitmq)
    report = comparison.report
    began_s = told_s = time.monotonic()
    for number in range(first, first + sequences):
        if not comparison.compare(f"{seed}/{number}"):
            print(report.differences[-1], end="\n\n", flush=True)
            if len(report.differences) == DIFFERENCES_MAX:
                print("too many differences")
                break
        if time.monotonic() - told_s > PROGRESS_S:
            told_s = time.monotonic()
            print(summary(report, told_s - began_s), flush=True)
    print(summary(report, time.monotonic() - began_s))
    for reason, count in report.intended.most_common():
        print(f"    {count} ended by an intended difference: {reason}")
    for reason, count in report.harmless.most_common():
        print(f"    {count} steps with a harmless difference: {reason}")
    for kind, count in report.kinds.most_common():
        print(f"    {count} {kind}, {report.refused[kind]} refused")
    return report


def summary(report: Report, elapsed_s: float) -> str:
    """The figures in a line."""
    return (
        f"{report.sequences} sequences, {report.steps} steps in {elapsed_s:.0f} s: "
        f"{len(report.differences)} unexplained differences, "
        f"{report.intended.total()} ended by intended ones, {report.by_chance} by chance"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
