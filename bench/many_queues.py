"""`python -m bench many-queues`: crash and restart a broker with 10,000 queues of 100 messages.

The queues are durable and the messages persistent.

The publisher sends round by round, one message to each queue, so every commit holds messages of
very many queues. During the last rounds strace counts the calls that make files durable: one for a
commit, whatever the number of queues in it. Then the broker gets SIGKILL and restarts; the figures
are the time until a client is connected, and until all queues have answered with their counts.
"""

import argparse
import time

from bench.brokers import Broker
from bench.measure import MeasureError, await_quiet
from bench.scenario import ANSWER_TIMEOUT_S, MIB, Scenario, run_scenario
from bench.syncs import SyncCount
from warrenmq.perf.client import CHANNEL, Client
from warrenmq.perf.options import parse_uri
from warrenmq.perf.publisher import PublishFrames
from warrenmq.perf.topology import basic_properties
from warrenmq.wire.methods import BasicAck, ConfirmSelect, QueueDeclare, QueueDeclareOk

# Declarations sent before the first reply is awaited.
PIPELINE = 500
SEND_BYTES = 262_144
# Last rounds, whose syncs strace counts; they are not timed.
COUNTED_ROUNDS = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queues", type=int, default=10_000, metavar="N")
    parser.add_argument("--messages", type=int, default=100, metavar="N", help="in each queue")
    parser.add_argument("--size", type=int, default=1024, metavar="BYTES")


def main(arguments: list[str]) -> int:
    return run_scenario("many-queues", __doc__, arguments, add_options, measure)


def measure(scenario: Scenario) -> None:
    for kind in scenario.kinds():
        with scenario.running(kind) as broker:
            ManyQueues(scenario, broker).run()


def declare_all(client: Client, names: list[bytes], is_passive: bool = False) -> int:
    """Declare durable queues, PIPELINE at a time; return the sum of their message counts."""
    total = 0
    for at in range(0, len(names), PIPELINE):
        some = names[at : at + PIPELINE]
        for name in some:
            client.send(CHANNEL, QueueDeclare(queue=name, durable=True, passive=is_passive))
        for name in some:
            reply = client.receive()
            if not isinstance(reply, QueueDeclareOk):
                raise MeasureError(f"{name.decode()}: {reply!r}")
            total += reply.message_count
    return total


class ManyQueues:
    """The scenario on one broker."""

    def __init__(self, scenario: Scenario, broker: Broker) -> None:
        self.scenario = scenario
        self.broker = broker
        options = scenario.options
        self.names = [b"bench-many-%05d" % number for number in range(options.queues)]
        self.rounds: int = options.messages
        self.size: int = options.size

    def run(self) -> None:
        client = Client(parse_uri(self.broker.uri), "bench", ANSWER_TIMEOUT_S)
        started = time.monotonic()
        declare_all(client, self.names)
        self._add("declaring", len(self.names) / (time.monotonic() - started), "queues/s")
        self._publish(client)
        client.close()
        self._crash()

    def _add(self, name: str, value: float, unit: str = "") -> None:
        self.scenario.add(self.broker, name, value, unit)

    def _publish(self, client: Client) -> None:
        client.request(ConfirmSelect())
        counted = min(COUNTED_ROUNDS, self.rounds // 2)
        publisher = Rounds(client, self.names, self.size)
        started = time.monotonic()
        for _ in range(self.rounds - counted):
            publisher.publish()
        seconds = time.monotonic() - started
        self._add("publishing", (self.rounds - counted) * len(self.names) / seconds, "msg/s")
        self._add("RSS", self.broker.usage().rss_bytes / MIB, "MiB")
        syncs = SyncCount(self.broker.pid(), self.broker.directory)
        confirms = publisher.confirms
        for _ in range(counted):
            publisher.publish()
        found = syncs.stop()
        if not syncs.is_available:
            self.scenario.say("strace is not available: syncs are not counted")
            return
        messages = counted * len(self.names)
        self._add("messages while syncs were counted", messages)
        self._add("confirms sent for them", publisher.confirms - confirms)
        for kind, count in sorted(found.items()):
            self._add(f"syncs of {kind} files", count)
        self._add("messages for each sync", messages / max(1, found.total()))

    def _crash(self) -> None:
        self.broker.kill()
        started = time.monotonic()
        self.broker.start()
        self._add("after SIGKILL: client connected", time.monotonic() - started, "s")
        client = Client(parse_uri(self.broker.uri), "bench", ANSWER_TIMEOUT_S)
        total = declare_all(client, self.names, is_passive=True)
        self._add("after SIGKILL: all queues counted", time.monotonic() - started, "s")
        client.close()
        if total != self.rounds * len(self.names):
            raise MeasureError(
                f"{total} of {self.rounds * len(self.names)} confirmed messages are there"
            )
        await_quiet(self.broker)
        self._add("RSS after the start", self.broker.usage().rss_bytes / MIB, "MiB")
        self._add("on disk", self.broker.disk_bytes() / MIB, "MiB")


class Rounds:
    """Publishes in rounds: one message to each queue, then waits until all are confirmed."""

    def __init__(self, client: Client, names: list[bytes], size: int) -> None:
        self.client = client
        self.confirms = 0
        self._published = 0
        # All delivery tags up to this one are confirmed.
        self._upto = 0
        # Tags above `_upto` that were confirmed singly.
        self._singles: set[int] = set()
        self._count = len(names)
        properties = basic_properties(True)
        frames = [
            PublishFrames(b"", name, properties, False, size, client.frame_max) for name in names
        ]
        self._octets = b"".join(each.stamped(time.monotonic_ns()) for each in frames)

    def publish(self) -> None:
        for at in range(0, len(self._octets), SEND_BYTES):
            self.client.sock.sendall(self._octets[at : at + SEND_BYTES])
        self._published += self._count
        while self._upto + len(self._singles) < self._published:
            reply = self.client.receive()
            if not isinstance(reply, BasicAck):
                raise MeasureError(f"expected a confirm, got {reply!r}")
            self.confirms += 1
            if not reply.multiple:
                self._singles.add(int(reply.delivery_tag))
            elif reply.delivery_tag > self._upto:
                self._upto = int(reply.delivery_tag)
                self._singles = {tag for tag in self._singles if tag > self._upto}
