"""Fail points: a real process dies, waits or fails at its n-th hit, if a test says so."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from simulator.failing_node import VARIABLE, arm_fail_points
from warrenmq.vocabulary.fail_points import FAIL_POINTS, FailPointError, fail_point

# Passes two points ten times, and says so after each round.
LOOP = """
import os
from simulator.failing_node import VARIABLE, arm_fail_points
from warrenmq.vocabulary.fail_points import fail_point
if VARIABLE in os.environ:
    arm_fail_points(os.environ[VARIABLE])
for number in range(10):
    fail_point("loop.began")
    print(number, flush=True)
    fail_point("loop.ended")
"""


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    """No point stays armed in this process."""
    yield
    FAIL_POINTS.clear()


def run_loop(points: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOOP],
        env={**os.environ, VARIABLE: points},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("points", "rounds"),
    [("loop.began=kill@3", 2), ("loop.ended=kill@3", 3), ("other=kill,loop.ended=kill", 1)],
)
def test_a_process_dies_at_its_hit(points: str, rounds: int) -> None:
    done = run_loop(points)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == [str(number) for number in range(rounds)]


def test_a_process_without_armed_points_ends_well() -> None:
    assert run_loop("other=kill").returncode == 0


def test_a_process_stops_and_continues() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP],
        env={**os.environ, VARIABLE: "loop.ended=stop@2"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate()
        assert len(output.split()) == 10
    finally:
        process.kill()


def test_a_point_fails_at_each_hit_or_at_one() -> None:
    arm_fail_points("disk.synced=error@2, link.sent=error,link.sent=delay:0")
    fail_point("disk.synced")
    with pytest.raises(FailPointError, match=r"fail point disk\.synced"):
        fail_point("disk.synced")
    fail_point("disk.synced")
    for _ in range(2):
        with pytest.raises(FailPointError):
            fail_point("link.sent")


@pytest.mark.parametrize(
    "points",
    ["", "x", "=kill", "x=", "x=kil", "x=delay", "x=delay:", "x=kill@0", "x=kill@", "x=kill:1"],
)
def test_a_wrong_text_is_refused(points: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        arm_fail_points(points)


def test_only_the_failing_node_reads_the_variable() -> None:
    """`warren server` ignores it; the program for tests refuses a wrong text."""
    environment = {**os.environ, VARIABLE: "nonsense"}
    outcomes = {
        module: subprocess.run(
            [sys.executable, "-m", module, "server", "--help"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for module in ("warrenmq", "simulator.failing_node")
    }
    assert outcomes["warrenmq"].returncode == 0
    assert outcomes["simulator.failing_node"].returncode == 1
    assert VARIABLE in outcomes["simulator.failing_node"].stderr
