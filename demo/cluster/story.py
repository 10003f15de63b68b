"""The story of the cluster: declare through one node, work through all, lose a node, judge."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pika
from rich.console import Console

from demo.checks import Checks, DemoError
from demo.cluster.nodes import Etcd, Node
from demo.processes import Processes
from demo.steps import Steps
from warrenmq.testing.checker.events import FaultEnd, FaultStart
from warrenmq.testing.checker.history import Recorder, now_us, read_history
from warrenmq.testing.checker.verdict import Verdict, judge

NAMES = ("n1", "n2", "n3")
QUEUES = 6
# When the node is killed and when it comes back, as shares of the time in which clients work.
KILL_SHARE = 0.3
BACK_SHARE = 0.55
WORKLOAD_TIMEOUT_S = 180.0


class ClusterStory:
    """Runs the steps and collects the checks; clients work for `work_s` seconds."""

    def __init__(self, console: Console, processes: Processes, checks: Checks, work_s: int) -> None:
        self._work_s = work_s
        self._processes = processes
        self._checks = checks
        self._steps = Steps(console)
        etcd = Etcd(processes)
        self._etcd = etcd
        self._nodes = [Node(processes, name, etcd) for name in NAMES]
        self.verdict: Verdict | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._steps.elapsed_s

    def tell(self) -> None:
        """Run all steps. Raises DemoError when no further step is possible."""
        with self._steps.step("Starting etcd and three nodes", len(NAMES) + 1) as bar:
            self._etcd.start()
            bar.advance()
            for node in self._nodes:
                node.start()
                bar.advance()
        self._use_at_once()
        self._work()

    def _use_at_once(self) -> None:
        """Declare through each node, and use it through the next at once."""
        with self._steps.step("Declaring here, using there", len(NAMES)) as bar:
            found = []
            for number, node in enumerate(self._nodes):
                other = self._nodes[(number + 1) % len(NAMES)]
                found.append(_send_through(node, other, f"tour-{number}"))
                bar.advance()
        self._checks.expect(
            all(found),
            "What was declared through one node took and gave messages through another at once.",
            f"A queue was not usable through another node: {found}",
        )

    def _work(self) -> None:
        history = self._processes.directory / "history.jsonl"
        faults = self._processes.directory / "faults.jsonl"
        uris = [part for node in self._nodes for part in ("--uri", node.uri)]
        victim = self._nodes[1]
        with self._steps.step(
            f"Clients on all nodes; kill -9 of {victim.name}", self._work_s
        ) as bar:
            workload = self._processes.start(
                "warrenmq.testing.workload", *uris, "--history", str(history),
                "--seconds", str(self._work_s), "--queues", str(QUEUES),
            )  # fmt: skip
            began = time.monotonic()
            recorder = Recorder(faults)
            _wait_until(began + KILL_SHARE * self._work_s, bar.advance)
            recorder.record(FaultStart(now_us(), "kill", "SIGKILL", victim.name, None, True))
            status = victim.kill()
            _wait_until(began + BACK_SHARE * self._work_s, bar.advance)
            seconds = victim.start()
            recorder.record(FaultEnd(now_us(), "kill"))
            recorder.close()
            drained = self._finish(workload)
        self._checks.expect(
            status == -9,
            f"kill -9 hit {victim.name}; started again, it accepted clients in {seconds:.1f} s.",
            f"{victim.name} ended with {status}, not by SIGKILL",
        )
        self._judge([history, faults], drained)

    def _finish(self, workload: subprocess.Popen[str]) -> bool:
        try:
            return workload.wait(WORKLOAD_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            raise DemoError("the clients did not come to an end") from None

    def _judge(self, files: list[Path], drained: bool) -> None:
        verdict = judge(read_history(files))
        self.verdict = verdict
        counts = verdict.counts
        self._checks.expect(
            verdict.is_clean and drained,
            f"Of {counts['confirmed']:,} confirmed messages none is lost, no order is broken, nothing came "
            "twice without saying so.",
            f"The checker found {len(verdict.violations)} violations",
        )


def _send_through(declarer: Node, other: Node, queue: str) -> bool:
    """Declare `queue` through one node; publish and get a message through the other."""
    with pika.BlockingConnection(pika.URLParameters(declarer.uri)) as first:
        first.channel().queue_declare(queue, durable=True)
        with pika.BlockingConnection(pika.URLParameters(other.uri)) as second:
            channel = second.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, b"hello", pika.BasicProperties(delivery_mode=2))
            _method, _properties, body = channel.basic_get(queue, auto_ack=True)
            channel.queue_delete(queue)
    return bool(body == b"hello")


def _wait_until(moment: float, on_second: Callable[[], None]) -> None:
    while time.monotonic() < moment:
        time.sleep(min(1.0, max(0.0, moment - time.monotonic())))
        on_second()
