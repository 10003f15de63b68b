"""Whole runs against the benchmark's sink, in one process and in two, and the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.sink import start_sink
from warrenmq.perf.options import PerfOptions
from warrenmq.perf.progress import Interval
from warrenmq.perf.run import run


@pytest.fixture
def sink_uri() -> Iterator[str]:
    pid, port = start_sink(64)
    yield f"amqp://127.0.0.1:{port}"
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_publishes_and_consumes(sink_uri: str, processes: int) -> None:
    # On a busy machine the sink may get no CPU time for a whole run: then try a longer one.
    for seconds in (0.4, 4.0, 40.0):
        intervals: list[Interval] = []
        options = PerfOptions(
            uri=sink_uri,
            size=64,
            time=seconds,
            interval=0.1,
            qos=1000,
            multi_ack_every=10,
            processes=processes,
        )
        summary = run(options, intervals.append)
        if min(summary.published, summary.received) > 1000:
            break
    assert summary.published > 1000
    assert summary.received > 1000
    # On a busy machine the time has no other bound.
    assert summary.publish_s > 0
    assert any(interval.received_rate > 0 for interval in intervals)
    assert summary.generator_cpu_s > 0
    json.dumps(summary.as_json())


def test_limits_end_the_run(sink_uri: str) -> None:
    options = PerfOptions(uri=sink_uri, size=64, pmessages=500, cmessages=700, multi_ack_every=100)
    summary = run(options, lambda interval: None)
    assert (summary.published, summary.received) == (500, 700)


def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warrenmq.cli.perf", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_reports_json(sink_uri: str) -> None:
    done = perf("-h", sink_uri, "-s", "64", "-C", "500", "-x", "1", "-y", "0", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["published"] == 500
    assert summary["received"] == 0


def test_the_command_reports_lines(sink_uri: str) -> None:
    done = perf("-h", sink_uri, "-s", "64", "-z", "0.5", "-i", "0.2", "-d", "night", "-a")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # The first interval ends at the first check after its time, so it may be longer.
    first = re.match(r"id: night, time: (\d+\.\d+)", lines[0])
    assert first is not None and float(first[1]) >= 0.2, lines
    assert "sent: " in lines[0]
    assert "received: " in lines[0]
    assert any(line.startswith("id: night, sending rate avg: ") for line in lines)


def test_a_wrong_option_is_one_line_and_status_2() -> None:
    done = perf("-q", "10", "-A", "100")
    assert done.returncode == 2
    assert (
        done.stderr
        == "warren perf: --multi-ack-every 100: more than --qos 10, no ack would ever be sent\n"
    )


def test_no_broker_is_one_line_and_status_1() -> None:
    done = perf("-h", "amqp://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("warren perf: cannot connect to 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1
