"""Runs the agents in forked processes (`--processes`).

A child has two pipes: it obeys one-line commands from the one, and writes one line of JSON per
answer or tick to the other. It forks before any socket of its agents exists. It ends when its
command pipe ends, so no child outlives the run. Producers and consumers never share a process
unless there is only one.
"""

import contextlib
import json
import os
import select
import signal
import time
from typing import Final, final

from mypy_extensions import i64

from warrenmq.perf.errors import PerfError
from warrenmq.perf.group import TICK_NS, AgentGroup
from warrenmq.perf.loop import CONNECT_TIMEOUT_S, PerfLoop
from warrenmq.perf.options import NANOSECONDS, PerfOptions
from warrenmq.perf.snapshot import Snapshot, decode_snapshot
from warrenmq.perf.topology import Target

ANSWER_TIMEOUT_S: Final = 2 * CONNECT_TIMEOUT_S
PIPE_BYTES: Final = 65536
READY: Final = "ready"
CONSUME: Final = "consume"
PUBLISH: Final = "publish"
STOP: Final = "stop"
CLOSE: Final = "close"


@final
class Share:
    """The indexes of the producers and consumers that one process runs."""

    def __init__(self, producers: list[int], consumers: list[int]) -> None:
        self.producers: list[int] = producers
        self.consumers: list[int] = consumers


def deal_agents(options: PerfOptions) -> list[Share]:
    """One share per process: at most `--processes`, fewer when a role has too few agents."""
    producers = list(range(options.producers))
    consumers = list(range(options.consumers))
    if options.processes == 1:
        return [Share(producers, consumers)]
    if not producers or not consumers:
        producing = min(options.processes, len(producers))
        consuming = min(options.processes, len(consumers))
    else:
        producing = min(options.processes // 2, len(producers))
        consuming = min(options.processes - producing, len(consumers))
    shares = [Share(producers[first::producing], []) for first in range(producing)]
    return shares + [Share([], consumers[first::consuming]) for first in range(consuming)]


@final
class Lines:
    """Reads whole lines from a pipe without blocking."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int = descriptor
        self._rest: bytes = b""

    def read(self) -> list[str] | None:
        """The complete lines read so far; None at the end of the pipe."""
        chunk = os.read(self.descriptor, PIPE_BYTES)
        if not chunk:
            return None
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [line.decode() for line in lines]


@final
class Worker:
    """The parent's view of a forked process."""

    def __init__(self, pid: int, commands: int, answers: int) -> None:
        self.pid: int = pid
        self.commands: int = commands
        self.answers: Lines = Lines(answers)
        self.latest: Snapshot = Snapshot()
        self.is_ready: bool = False

    def take(self, line: str) -> None:
        """Take an answer: `ready`, a snapshot, or the text of a PerfError, which is raised."""
        message = json.loads(line)
        if message == READY:
            self.is_ready = True
        elif isinstance(message, str):
            raise PerfError(message)
        else:
            snapshot = decode_snapshot(line)
            snapshot.latency.merge(self.latest.latency)
            snapshot.confirm_latency.merge(self.latest.confirm_latency)
            self.latest = snapshot


@final
class ProcessGroup(AgentGroup):
    """All agents in forked processes; the constructor returns when every connection is open."""

    def __init__(self, options: PerfOptions, targets: list[Target], shares: list[Share]) -> None:
        self._workers: list[Worker] = []
        try:
            for share in shares:
                self._workers.append(fork_worker(options, targets, share, self._workers))
            self._await_ready()
        except BaseException:
            self.abort()
            raise

    def start_consuming(self) -> None:
        self._tell(CONSUME)
        self._await_ready()

    def start_publishing(self, start_ns: i64) -> None:
        self._tell(f"{PUBLISH} {start_ns}")
        self._await_ready()

    def stop_publishing(self) -> None:
        self._tell(STOP)
        self._await_ready()

    def run(self) -> list[Snapshot]:
        tick_end_ns: i64 = time.monotonic_ns() + TICK_NS
        left_ns: i64 = TICK_NS
        while left_ns > 0:
            self._read_answers(self._workers, float(left_ns) / NANOSECONDS)
            left_ns = tick_end_ns - time.monotonic_ns()
        snapshots = []
        for worker in self._workers:
            snapshots.append(worker.latest)
            # The caller gets the latencies once; the counters stay the latest known.
            kept = Snapshot()
            kept.counters = worker.latest.counters
            worker.latest = kept
        return snapshots

    def close(self) -> None:
        self._tell(CLOSE)
        self._await_ready()
        self.abort()

    def abort(self) -> None:
        for worker in self._workers:
            os.close(worker.commands)
            os.close(worker.answers.descriptor)
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            os.waitpid(worker.pid, 0)
        self._workers = []

    def _tell(self, command: str) -> None:
        for worker in self._workers:
            worker.is_ready = False
            try:
                os.write(worker.commands, command.encode() + b"\n")
            except BrokenPipeError:
                raise PerfError("a process of the load generator ended early") from None

    def _await_ready(self) -> None:
        deadline_ns: i64 = time.monotonic_ns() + i64(ANSWER_TIMEOUT_S * NANOSECONDS)
        while True:
            # Skip workers that have answered: after `close` their pipe ends.
            waiting = [worker for worker in self._workers if not worker.is_ready]
            if not waiting:
                return
            self._read_answers(waiting, 0.1)
            if time.monotonic_ns() > deadline_ns:
                raise PerfError("a process of the load generator does not answer")

    def _read_answers(self, workers: list[Worker], timeout_s: float) -> None:
        readable = select.select(
            [worker.answers.descriptor for worker in workers], [], [], timeout_s
        )[0]
        for worker in workers:
            if worker.answers.descriptor in readable:
                lines = worker.answers.read()
                if lines is None:
                    raise PerfError("a process of the load generator ended early")
                for line in lines:
                    worker.take(line)


def fork_worker(
    options: PerfOptions, targets: list[Target], share: Share, siblings: list[Worker]
) -> Worker:
    """Fork a process for `share`; it answers `ready` when its connections are open."""
    commands_read, commands_write = os.pipe()
    answers_read, answers_write = os.pipe()
    pid = os.fork()
    if pid > 0:
        os.close(commands_read)
        os.close(answers_write)
        return Worker(pid, commands_write, answers_read)
    status = 1
    try:
        # Only the parent handles Ctrl-C; it sends commands to the children. A pipe ends only when
        # no process has its other end open.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(commands_write)
        os.close(answers_read)
        for sibling in siblings:
            os.close(sibling.commands)
            os.close(sibling.answers.descriptor)
        run_worker(options, targets, share, Lines(commands_read), answers_write)
        status = 0
    finally:
        # Never return into the parent's code, whatever happened.
        os._exit(status)


def run_worker(
    options: PerfOptions, targets: list[Target], share: Share, commands: Lines, answers: int
) -> None:
    """Run a forked process from its first socket to its end."""
    loop: PerfLoop | None = None
    try:
        loop = PerfLoop(options, targets, share.producers, share.consumers)
        _answer(answers, json.dumps(READY))
        obey(loop, commands, answers)
    except PerfError as error:
        _answer(answers, json.dumps(str(error)))
    except Exception as crash:  # only the parent can show an error
        _answer(answers, json.dumps(f"a process of the load generator failed: {crash!r}"))
    finally:
        if loop is not None:
            loop.abort()


def obey(loop: PerfLoop, commands: Lines, answers: int) -> None:
    """Run turns and answer commands until `close` or the end of the command pipe."""
    next_tick_ns: i64 = time.monotonic_ns() + TICK_NS
    while True:
        if select.select([commands.descriptor], [], [], 0)[0]:
            lines = commands.read()
            if lines is None:
                return
            for line in lines:
                name, _, argument = line.partition(" ")
                if name == CONSUME:
                    loop.start_consuming()
                elif name == PUBLISH:
                    loop.start_publishing(int(argument))
                elif name == STOP:
                    loop.stop_publishing()
                elif name == CLOSE:
                    loop.close()
                _answer(answers, json.dumps(READY))
                if name == CLOSE:
                    return
        # Check the pipe after every millisecond of turns, or a command would wait for the next
        # message.
        turn_end_ns: i64 = time.monotonic_ns() + NANOSECONDS // 1000
        while time.monotonic_ns() < turn_end_ns:
            loop.turn(NANOSECONDS // 1000)
        now_ns: i64 = time.monotonic_ns()
        if now_ns >= next_tick_ns:
            next_tick_ns = now_ns + TICK_NS
            _answer(answers, loop.snapshot().encode())


def _answer(answers: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, line.encode() + b"\n")
