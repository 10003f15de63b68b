"""Runs the Spark driver twice: the first run is killed in the drain, the second runs to the end."""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from demo.broker import Broker
from demo.checks import DemoError
from demo.corpus import QueuePlan
from demo.processes import Processes, has_ended
from demo.spark_records import SparkResults
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupList, GroupStatus, ListGroups
from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.local.java import require_spark

# Batches of the drain: enough that the kill falls between the first and the last.
BATCHES = 4
KILL_AFTER_BATCHES = 1
DRIVER_TIMEOUT_S = 270.0
POLL_S = 0.005
# Perf data would go to the system's temporary directory. A JVM that lives for seconds spends most
# of them compiling itself: the quick compiler alone and the simplest collector halve that time.
JVM_OPTIONS = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Shows progress: called with a phase and the number of messages in committed batches.
ShowPhase = Callable[[str, int], None]


def why_no_spark(directory: Path) -> str | None:
    """Return the reason (one line) why Spark cannot run, or None.

    JVMs started after this call keep their temporary files in `directory`.
    """
    given = os.environ.get("JAVA_TOOL_OPTIONS", "")
    os.environ["JAVA_TOOL_OPTIONS"] = (
        f'{given} -Djava.io.tmpdir="{directory}" {JVM_OPTIONS}'.strip()
    )
    try:
        require_spark()
    except SparkUnavailableError as error:
        return str(error)
    return None


class SparkRun:
    """The two runs of the driver on one checkpoint."""

    def __init__(
        self, processes: Processes, broker: Broker, plan: QueuePlan, message_count: int
    ) -> None:
        self._processes = processes
        self._broker = broker
        self._plan = plan
        self._message_count = message_count
        self._messages_per_batch = -(-message_count // BATCHES)

    @property
    def _checkpoint(self) -> Path:
        return self._processes.directory / "checkpoint"

    def drain_until_killed(self, show: ShowPhase) -> int:
        """Start the drain, and SIGKILL all processes of Spark inside a batch.

        Returns the number of committed messages. DemoError when the driver ends by itself or
        stalls.
        """
        process = self._start()
        deadline = time.monotonic() + DRIVER_TIMEOUT_S
        show("Spark starts", 0)
        while True:
            if has_ended(process):
                raise DemoError(
                    f"the Spark driver ended by itself, with status {self._end(process)}"
                )
            committed = _batches(self._checkpoint / "commits")
            planned = _batches(self._checkpoint / "offsets")
            if planned:
                show("Spark drains", self._messages(committed))
            # An offset without its commit is a batch in progress.
            if committed >= BATCHES or (committed >= KILL_AFTER_BATCHES and planned > committed):
                self._end(process)
                return self._messages(_batches(self._checkpoint / "commits"))
            _give_up_after(deadline)
            time.sleep(POLL_S)

    def run_to_the_end(self, show: ShowPhase) -> SparkResults:
        """Start the driver again and wait for its end; DemoError when it fails or stalls."""
        process = self._start()
        phases = _lines(process)
        phase = "Spark starts again"
        deadline = time.monotonic() + DRIVER_TIMEOUT_S
        while not has_ended(process):
            if not phases.empty():
                phase = phases.get()
            show(phase, self._messages(_batches(self._checkpoint / "commits")))
            _give_up_after(deadline)
            time.sleep(0.05)
        status = self._end(process)
        if status != 0:
            raise DemoError(f"the Spark driver ended with status {status}")
        return msgspec.json.decode(
            (self._processes.directory / "results.json").read_bytes(), type=SparkResults
        )

    def group(self) -> GroupStatus:
        """The state of the one reader group; DemoError when there is not exactly one."""
        with AdminClient(NodeAddress(self._broker.uri), "demo") as client:
            groups = client.request(ListGroups(), GroupList).groups
        if len(groups) != 1:
            raise DemoError(f"the broker has {len(groups)} reader groups, not one")
        return groups[0]

    def _start(self) -> subprocess.Popen[str]:
        directory = self._processes.directory
        scratch = directory / "spark"
        scratch.mkdir(exist_ok=True)
        return self._processes.start(
            "demo.spark_driver",
            str(directory),
            self._plan.streamed,
            self._plan.reported,
            str(self._messages_per_batch),
            variables={
                "WARREN_URI": self._broker.uri,
                "TMPDIR": str(scratch),
                "SPARK_LOCAL_DIRS": str(scratch),
            },
        )

    def _end(self, process: subprocess.Popen[str]) -> int:
        self._processes.kill(process)
        return process.returncode

    def _messages(self, batches: int) -> int:
        return min(batches * self._messages_per_batch, self._message_count)


def _batches(log: Path) -> int:
    """Count the batches in a log of the checkpoint, which is a directory with a file for each."""
    try:
        return sum(name.isdigit() for name in os.listdir(log))
    except FileNotFoundError:
        return 0


def _lines(process: subprocess.Popen[str]) -> "queue.SimpleQueue[str]":
    """Return a queue of the process's output lines; a thread fills it until the process ends."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.strip())

    threading.Thread(target=read, daemon=True).start()
    return lines


def _give_up_after(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise DemoError(f"the Spark driver took more than {DRIVER_TIMEOUT_S:.0f} s")
