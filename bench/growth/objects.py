"""Connections and queues that are there beside those in use."""

import time

from bench.brokers import Broker
from bench.growth.axis import QUEUE, Axis, Case, Meter
from bench.growth.clients import Publisher, connected, publish_octets, request_all
from bench.measure import await_quiet
from bench.scenario import MIB
from warrenmq.perf.client import Client
from warrenmq.wire.methods import QueueDeclare

# Connections that are closed at a time.
CLOSED = 50
# Seconds over which the cost of doing nothing is measured.
IDLE_S = 3.0


class Connections(Axis):
    """Idle connections with one channel each; the resident memory of the last size is a figure."""

    name = "connections"
    sizes = (10, 100, 1_000, 10_000)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._clients: list[Client] = []
        self._empty_bytes = _resident(case.broker)
        case.scenario.add(
            case.broker, "resident memory of an idle node", self._empty_bytes / MIB, "MiB"
        )

    def grow(self, size: int) -> dict[str, float]:
        """Open connections; a flow of messages runs beside them, and then nothing does."""
        meter = self.case.once()
        new = size - len(self._clients)
        with meter.counts(new):
            self._clients += [connected(self.case.broker) for _ in range(new)]
        # Sockets alone: to close thousands of connections in good order takes long.
        self.closers = [client.sock.close for client in self._clients]
        used = _resident(self.case.broker) - self._empty_bytes
        self.case.scenario.add(
            self.case.broker, f"resident memory of each of {size:,} connections with a channel",
            used / size / 1024, "KiB",
        )  # fmt: skip
        idle_us = _idle_us(self.case)

        def close_some(counting: Meter) -> None:
            leaving = [connected(self.case.broker) for _ in range(CLOSED)]
            with counting.counts(CLOSED):
                for client in leaving:
                    client.close()

        return {
            "open a connection and a channel": meter.cpu_us,
            "close one": self.case.repeated(close_some),
            "message of 100 B beside them": self.case.flow("--queue", QUEUE, "--size", "100"),
            "a second of doing nothing": idle_us,
        }


class Queues(Axis):
    """Durable queues without consumers."""

    name = "queues"
    sizes = (10, 1_000, 10_000, 100_000)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._publisher = Publisher(case.broker)
        self.closers.append(self._publisher.close)
        self._names: list[bytes] = []

    def grow(self, size: int) -> dict[str, float]:
        """Declare queues; publish to all in turn, to one, and do nothing."""
        first = len(self._names)
        new = [b"bench-growth-%06d" % number for number in range(first, size)]
        meter = self.case.once()
        with meter.counts(len(new)):
            request_all(
                self._publisher.client, [QueueDeclare(queue=name, durable=True) for name in new]
            )
        self._names += new
        count = min(self.case.scenario.options.messages, 10_000)
        octets = [publish_octets(self._names[at * 7919 % size], 100) for at in range(count)]
        round_cost = self.case.once()
        with round_cost.counts(count):
            self._publisher.publish(octets)
        idle_us = _idle_us(self.case)
        return {
            "declare a durable queue": meter.cpu_us,
            "publish to another queue each time": round_cost.cpu_us,
            "message of 100 B beside them": self.case.flow("--queue", QUEUE, "--size", "100"),
            "a second of doing nothing": idle_us,
        }


def _idle_us(case: Case) -> float:
    """CPU time (µs) that the broker spends in a second in which nobody asks for anything."""
    await_quiet(case.broker)
    meter = case.once()
    seconds: float = min(IDLE_S, case.scenario.options.seconds)
    with meter.counts(1):
        time.sleep(seconds)
    return meter.spent_s * 1e6 / seconds


def _resident(broker: Broker) -> int:
    """Resident bytes of a broker at rest."""
    await_quiet(broker)
    return broker.usage().rss_bytes
