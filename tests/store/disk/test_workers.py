"""T67: the store's threads keep order, lanes do not wait for each other, a stop is not held up."""

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from simulator.simulated.file_system import SimulatedFileSystem
from tests.support.stores.made_files import STORE_ID
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.workers import Stopped, Workers
from warrenmq.store.jobs.job import COMPACT, READ, WRITE, StoreJob

PATIENCE_S = 30


class Call(StoreJob):
    """A job that calls a function on its thread."""

    def __init__(self, lane: int, call: Callable[[], object]) -> None:
        super().__init__(lane)
        self.call = call


class CallRunner(JobRunner):
    """A runner of `Call` jobs."""

    def run(self, job: StoreJob) -> None:
        assert isinstance(job, Call)
        try:
            job.call()
        except Exception as error:  # as the real runner does: the job carries the error
            job.error = error


class Machine:
    """Workers and the jobs that they have reported."""

    def __init__(self) -> None:
        self.done: queue.SimpleQueue[StoreJob] = queue.SimpleQueue()
        self.workers = Workers(self.done.put)
        self.runner = CallRunner(SimulatedFileSystem(), STORE_ID)

    def submit(self, lane: int, call: Callable[[], object]) -> Call:
        job = Call(lane, call)
        self.workers.submit(self.runner.run, job)
        return job

    def wait(self, *jobs: StoreJob) -> None:
        """Wait until all the jobs have been reported, in any order."""
        missing = list(jobs)
        while missing:
            missing.remove(self.done.get(timeout=PATIENCE_S))


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.workers.stop(PATIENCE_S, PATIENCE_S)


def test_writes_run_in_their_order_and_are_reported_in_it(machine: Machine) -> None:
    seen: list[int] = []

    def note(number: int) -> Callable[[], object]:
        return lambda: seen.append(number)

    jobs = [machine.submit(WRITE, note(number)) for number in range(500)]
    reported = [machine.done.get(timeout=PATIENCE_S) for _ in jobs]
    assert seen == list(range(500))
    assert reported == jobs


def test_a_failed_job_is_reported_and_the_next_one_runs(machine: Machine) -> None:
    def fail() -> None:
        raise OSError("broken")

    for lane in (WRITE, READ, COMPACT):
        jobs = [machine.submit(lane, fail), machine.submit(lane, time.monotonic)]
        machine.wait(*jobs)
        assert isinstance(jobs[0].error, OSError)
        assert jobs[1].error is None


def test_no_lane_waits_for_another_and_two_can_read(machine: Machine) -> None:
    go_on = threading.Event()
    stuck = [machine.submit(lane, go_on.wait) for lane in (WRITE, READ, COMPACT)]
    machine.wait(machine.submit(READ, time.monotonic))
    stuck.append(machine.submit(READ, go_on.wait))
    late = [machine.submit(lane, time.monotonic) for lane in (WRITE, READ, COMPACT)]
    time.sleep(0.05)
    assert machine.done.empty()
    go_on.set()
    machine.wait(*stuck, *late)


def test_stop_writes_what_waits_and_drops_the_rest() -> None:
    machine = Machine()
    seen: list[str] = []
    started = [threading.Event() for _ in range(3)]

    def hold(event: threading.Event) -> Callable[[], object]:
        def call() -> None:
            event.set()
            # The job lasts until the stop begins: no other job of its lane starts before.
            machine.workers.pause(PATIENCE_S)

        return call

    machine.submit(WRITE, lambda: time.sleep(0.05))
    machine.submit(COMPACT, hold(started[0]))
    machine.submit(READ, hold(started[1]))
    machine.submit(READ, hold(started[2]))
    for event in started:
        assert event.wait(PATIENCE_S)
    for number in range(50):
        machine.submit(WRITE, lambda: seen.append("write"))
        machine.submit(READ if number % 2 else COMPACT, lambda: seen.append("other"))
    assert machine.workers.stop(PATIENCE_S, PATIENCE_S)
    assert seen == ["write"] * 50
    assert machine.done.qsize() == 51


def test_stop_does_not_wait_for_what_is_stuck() -> None:
    machine = Machine()
    go_on = threading.Event()
    for lane in (READ, READ, COMPACT):
        machine.submit(lane, lambda: go_on.wait(10 * PATIENCE_S))
    written = machine.submit(WRITE, time.monotonic)
    start = time.monotonic()
    assert machine.workers.stop(PATIENCE_S, 0.1)
    assert time.monotonic() - start < PATIENCE_S
    assert machine.done.get_nowait() is written
    go_on.set()
    # A job that ends after the stop is not reported.
    time.sleep(0.1)
    assert machine.done.empty()


def test_a_write_that_is_stuck_is_told() -> None:
    machine = Machine()
    go_on = threading.Event()
    machine.submit(WRITE, lambda: go_on.wait(PATIENCE_S))
    assert not machine.workers.stop(0.1, 0.1)
    go_on.set()


def test_a_compaction_that_rests_is_ended_by_a_stop() -> None:
    machine = Machine()
    machine.workers.pause(0.0)
    started = threading.Event()

    def rest() -> None:
        started.set()
        machine.workers.pause(10 * PATIENCE_S)

    job = machine.submit(COMPACT, rest)
    assert started.wait(PATIENCE_S)
    machine.workers.stop(PATIENCE_S, PATIENCE_S)
    assert isinstance(job.error, Stopped)
