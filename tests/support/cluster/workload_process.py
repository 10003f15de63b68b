"""A workload in a process of its own, and the faults that a test causes meanwhile.

with RecordedRun(tmp_path, [node.uri]) as run:
    run.await_confirms(300)
    with run.fault("kill", node.name, is_lone_crash=True):
        node.kill()
        node.start()
    run.await_confirms(300)
    verdict = run.finish()
assert verdict.is_clean, verdict.text()
"""

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from simulator.checker.events import AnyEvent, Event, FaultEnd, FaultStart
from simulator.checker.history import Recorder, now_us, read_history
from simulator.checker.verdict import Verdict, judge
from tests.support.awaiting import PATIENCE_S, eventually

# How the history writes the events that tests wait for.
_CONFIRM = b'"event":"confirm"'
_LOSS = b'"reason":"lost"'
# Longer than any test publishes: the test says when the workload ends.
_SECONDS = "600"


class RecordedRun:
    """The workload's process, its history, and the history of the faults.

    prefix: put before the command, for instance to run it in a network of its own. options: of the
    workload's program.
    """

    def __init__(
        self,
        directory: Path,
        uris: Sequence[str],
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        self._history = directory / "history.jsonl"
        self._faults_path = directory / "faults.jsonl"
        self._log = directory / "workload.log"
        self._faults = Recorder(self._faults_path)
        self._fault_count = 0
        # How far the history was read, and how often each marker was there.
        self._read_bytes = 0
        self._counts: Counter[bytes] = Counter()
        # Lost connections before the last fault.
        self._losses_before = 0
        self._command = [*prefix, sys.executable, "-m", "simulator.workload", *options]
        self._command += ["--history", str(self._history), "--seconds", _SECONDS]
        for uri in uris:
            self._command += ["--uri", uri]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._faults.close()

    def await_confirms(self, count: int) -> None:
        """Wait until publishers have got `count` confirms from now on."""
        self._await(_CONFIRM, self._count(_CONFIRM) + count)

    def await_losses(self, count: int) -> None:
        """Wait until consumers have lost `count` connections since the start of the last fault."""
        self._await(_LOSS, self._losses_before + count)

    def _await(self, marker: bytes, goal: int) -> None:
        what = f"{goal} times {marker!r}"
        eventually(lambda: self._count(marker) >= goal or self._has_ended(), what)
        assert not self._has_ended(), self._log.read_text()

    @contextlib.contextmanager
    def fault(
        self,
        kind: str,
        node: str,
        gap_limit_ms: int | None = None,
        is_lone_crash: bool = False,
        queues: tuple[str, ...] = (),
        keeps_packets: bool = False,
        hands_over: bool = False,
    ) -> Iterator[None]:
        """Record a fault that lasts as long as the block; see `FaultStart`."""
        self._fault_count += 1
        self._losses_before = self._count(_LOSS)
        name = f"{kind} {self._fault_count}"
        self._faults.record(
            FaultStart(
                now_us(),
                name,
                kind,
                node,
                gap_limit_ms,
                is_lone_crash,
                queues,
                keeps_packets,
                hands_over,
            )
        )
        yield
        self._faults.record(FaultEnd(now_us(), name))

    def finish(self, window_ms: int = 1000) -> Verdict:
        """End the publishing, wait until the queues are drained, and judge both histories.

        window_ms: as for `judge`.
        """
        return judge(self.events(), window_ms)

    def record(self, event: Event) -> None:
        """Add an event that the test has caused or seen."""
        self._faults.record(event)

    def events(self) -> list[AnyEvent]:
        """End the publishing, wait until the queues are drained, and return both histories."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        # Draining has a limit of its own.
        self._process.wait(4 * PATIENCE_S)
        self._faults.flush()
        return read_history([self._history, self._faults_path])

    def _has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def _count(self, marker: bytes) -> int:
        if self._history.exists():
            with self._history.open("rb") as file:
                file.seek(self._read_bytes)
                lines, end, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(lines) + len(end)
            for each in (_CONFIRM, _LOSS):
                self._counts[each] += lines.count(each)
        return self._counts[marker]
