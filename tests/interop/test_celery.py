"""A Celery application works: retries, rpc:// results, groups, chains, chords, lost workers."""

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from celery import chain, group

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent
# A worker starts in 2 s on a machine without other load.
TIMEOUT_S = 90
MODULE = "tests.interop.celery_app"


class Worker:
    """A process `celery worker` of the application, with a pool of three threads."""

    def __init__(self, directory: Path, environment: dict[str, str], name: str) -> None:
        self.log_path = directory / f"{name}.log"
        # Add the tests' root to the paths from which `warren` is importable.
        paths = [
            str(ROOT),
            *(
                os.path.abspath(path)
                for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
                if path
            ),
        ]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", MODULE, "worker", "--pool", "threads", "--concurrency", "3",
                 "--hostname", f"{name}@localhost", "--loglevel", "INFO"],
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(paths)},
            )  # fmt: skip

    def await_ready(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while " ready." not in self.log_path.read_text():
            assert self.process.poll() is None, self.log_path.read_text()
            assert time.monotonic() < deadline, self.log_path.read_text()
            time.sleep(0.05)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def environment(broker_uri: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {
        "INTEROP_BROKER": broker_uri,
        "INTEROP_BACKEND": "rpc://",
        "INTEROP_QUEUE": f"celery-{time.time_ns():x}",
        "INTEROP_DIRECTORY": str(tmp_path_factory.mktemp("celery")),
    }


@pytest.fixture(scope="module")
def tasks(environment: dict[str, str]) -> ModuleType:
    os.environ.update(environment)
    return importlib.import_module(MODULE)


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], tasks: ModuleType) -> Iterator[Worker]:
    worker = Worker(Path(environment["INTEROP_DIRECTORY"]), environment, "first")
    worker.await_ready()
    yield worker
    try:
        assert worker.stop() == 0
        log = worker.log_path.read_text()
        assert "Connection to broker lost" not in log, log
        assert "CRITICAL" not in log, log
    finally:
        worker.kill()


@pytest.mark.usefixtures("worker")
def test_results(tasks: ModuleType) -> None:
    results = [tasks.add.delay(number, number) for number in range(50)]
    assert [result.get(timeout=TIMEOUT_S) for result in results] == [
        2 * number for number in range(50)
    ]


@pytest.mark.usefixtures("worker")
def test_retries(tasks: ModuleType) -> None:
    # A retry waits unacked in the worker, which raises its prefetch count meanwhile.
    results = [tasks.third_time.delay() for _ in range(10)]
    assert [result.get(timeout=TIMEOUT_S) for result in results] == [2] * 10


@pytest.mark.usefixtures("worker")
def test_eta(tasks: ModuleType) -> None:
    results = [tasks.add.apply_async((number, 1), countdown=0.5) for number in range(20)]
    assert [result.get(timeout=TIMEOUT_S) for result in results] == [
        number + 1 for number in range(20)
    ]


@pytest.mark.usefixtures("worker")
def test_errors_travel(tasks: ModuleType) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        tasks.fail.delay("on purpose").get(timeout=TIMEOUT_S)


@pytest.mark.usefixtures("worker")
def test_chain_and_group(tasks: ModuleType) -> None:
    assert (
        chain(tasks.add.s(1, 2), tasks.add.s(3), tasks.add.s(4)).delay().get(timeout=TIMEOUT_S)
        == 10
    )
    grouped = group(tasks.add.s(number, 1) for number in range(20)).delay()
    assert grouped.get(timeout=TIMEOUT_S) == [number + 1 for number in range(20)]


@pytest.mark.usefixtures("worker")
def test_a_burst(tasks: ModuleType) -> None:
    results = [tasks.add.delay(number, 0) for number in range(300)]
    assert [result.get(timeout=TIMEOUT_S) for result in results] == list(range(300))
    for _ in range(20):
        tasks.nothing.delay()


@pytest.mark.usefixtures("worker")
def test_remote_control(tasks: ModuleType) -> None:
    # Remote control uses broadcasts over fanout exchanges, and reply queues that expire.
    assert list(tasks.app.control.ping(timeout=TIMEOUT_S, limit=1)) == [
        {"first@localhost": {"ok": "pong"}}
    ]
    active = tasks.app.control.inspect(timeout=TIMEOUT_S, limit=1).active_queues()
    assert active is not None
    assert [queue["name"] for queue in active["first@localhost"]] == [
        tasks.app.conf.task_default_queue
    ]


@pytest.mark.usefixtures("worker")
def test_publishing_with_confirms(tasks: ModuleType) -> None:
    with tasks.app.connection_for_write(transport_options={"confirm_publish": True}) as connection:
        result = tasks.add.apply_async((20, 22), connection=connection)
        assert result.get(timeout=TIMEOUT_S) == 42


def test_a_task_of_a_killed_worker_goes_to_another(
    tasks: ModuleType, environment: dict[str, str]
) -> None:
    environment = environment | {"INTEROP_QUEUE": environment["INTEROP_QUEUE"] + "-late"}
    directory = Path(environment["INTEROP_DIRECTORY"])
    first = Worker(directory, environment, "doomed")
    try:
        first.await_ready()
        result = tasks.slow.apply_async((1.0,), queue=environment["INTEROP_QUEUE"])
        deadline = time.monotonic() + TIMEOUT_S
        while "slow" not in first.log_path.read_text().partition(" ready.")[2]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        first.kill()
    second = Worker(directory, environment, "heir")
    try:
        second.await_ready()
        assert result.get(timeout=TIMEOUT_S) == "done"
        assert second.stop() == 0
    finally:
        second.kill()


def test_chord(tasks: ModuleType, environment: dict[str, str]) -> None:
    """A chord works: the broker carries its tasks, and the retries of the task that waits.

    A chord needs a result backend that counts.
    """
    results = Path(environment["INTEROP_DIRECTORY"]) / "results"
    results.mkdir()
    environment = environment | {
        "INTEROP_QUEUE": environment["INTEROP_QUEUE"] + "-chord",
        "INTEROP_BACKEND": f"file://{results}",
    }
    script = (
        "from celery import chord\n"
        f"from {MODULE} import add, total\n"
        f"print(chord((add.s(n, n) for n in range(10)), total.s()).delay().get(timeout={TIMEOUT_S}))\n"
    )
    worker = Worker(Path(environment["INTEROP_DIRECTORY"]), environment, "chord")
    try:
        worker.await_ready()
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", script], env=os.environ | environment | {"PYTHONPATH": paths}, cwd=results,
            capture_output=True, text=True, timeout=TIMEOUT_S + 60,
        )  # fmt: skip
        assert done.stdout.strip() == "90", done.stderr + worker.log_path.read_text()
        assert worker.stop() == 0
    finally:
        worker.kill()
