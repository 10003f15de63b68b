"""A broker process seen from outside: memory, file descriptors, service to a polite client."""

import os
import threading
import time
from pathlib import Path

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.process import BrokerProcess

MIB = 1 << 20


class WatchedBroker:
    """A running node, measured through /proc."""

    def __init__(self, node: BrokerProcess) -> None:
        self.node = node

    @property
    def _pid(self) -> int:
        assert self.node.process is not None
        return self.node.process.pid

    def rss(self) -> int:
        """Resident memory in bytes."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Number of open file descriptors."""
        return len(os.listdir(f"/proc/{self._pid}/fd"))

    def cpu_s(self) -> float:
        """Processor time (s) that the node has used so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def settled_rss(self, descriptors: int) -> int:
        """Resident memory (bytes) once at most `descriptors` file descriptors are open."""
        eventually(
            lambda: self.descriptors() <= descriptors,
            "the descriptors of those who are gone closed",
        )
        time.sleep(0.1)
        return self.rss()

    def connect(self) -> Peer:
        """An open connection."""
        return Peer(SocketLink(self.node.host, self.node.port)).open()

    def check_service(self) -> float:
        """Send one message to and fro with a new client; returns the duration in s."""
        started = time.monotonic()
        peer = self.connect()
        channel = peer.channel()
        queue = channel.declare(exclusive=True).queue
        channel.publish(queue, b"well behaved")
        assert channel.get(queue, True).body == b"well behaved"
        peer.close()
        return time.monotonic() - started


class WellBehaved(threading.Thread):
    """Publishes and gets in turn until stopped, and measures the broker meanwhile.

    `slowest` is the longest round trip (s), `longest_work_s` the most processor time of the broker
    during one, `peak` its most memory (bytes). On a busy machine a round trip may take any time;
    the broker's processor time shows what it did for others first.
    """

    def __init__(self, broker: WatchedBroker) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.slowest = 0.0
        self.longest_work_s = 0.0
        self.peak = 0
        self.rounds = 0
        self.failure: BaseException | None = None
        self._is_over = threading.Event()

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # the test shows any error at its end
            self.failure = error

    def _work(self) -> None:
        peer = self.broker.connect()
        channel = peer.channel()
        queue = channel.declare(exclusive=True).queue
        # At least one round, however soon the test stops it.
        while self.rounds == 0 or not self._is_over.wait(0.005):
            started, worked_s = time.monotonic(), self.broker.cpu_s()
            body = b"%d" % self.rounds
            channel.publish(queue, body)
            assert channel.get(queue, True).body == body
            self.slowest = max(self.slowest, time.monotonic() - started)
            self.longest_work_s = max(self.longest_work_s, self.broker.cpu_s() - worked_s)
            self.peak = max(self.peak, self.broker.rss())
            self.rounds += 1
        peer.close()

    def await_rounds(self, count: int, timeout_s: float = 50) -> None:
        """Wait for `count` more rounds; each may take long, but none may wait for ever."""
        upto = self.rounds + count
        deadline = time.monotonic() + timeout_s
        while self.rounds < upto and self.failure is None:
            assert time.monotonic() < deadline, f"stands still after {self.rounds} rounds"
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop the thread; raises its error."""
        self._is_over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "no answer"
        if self.failure is not None:
            raise self.failure
        assert self.rounds > 0
