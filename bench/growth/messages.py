"""Consumers, sizes, unacked messages, depth and priorities of one queue."""

import random

from bench.growth.axis import QUEUE, Axis, Case, Meter
from bench.growth.clients import Holder, Publisher, publish_octets, request_all
from bench.scenario import remove
from warrenmq.wire.method import Method
from warrenmq.wire.methods import BasicGet

# Messages that are published and fetched at the same depth before the next ones.
STEP = 1000


class Consumers(Axis):
    """Consumers of one queue, each on a connection of its own."""

    name = "consumers"
    sizes = (1, 10, 100, 1_000)

    def grow(self, size: int) -> dict[str, float]:
        """One publisher, and that many consumers."""
        remove(self.case.broker, QUEUE)
        arguments = ("--queue", QUEUE, "--size", "100", "--consumers", str(size))
        return {"message of 100 B": self.case.flow(*arguments, "--confirm", "1000")}


class Sizes(Axis):
    """Bytes of a body; a cost that grows as they do has the exponent 1."""

    name = "bytes"
    sizes = (0, 1_024, 65_536, 1_048_576, 16_777_216, 134_217_728)

    def grow(self, size: int) -> dict[str, float]:
        """Transient messages, and persistent ones that are confirmed."""
        window = str(max(1, min(1000, 16_777_216 // max(1, size))))
        # The same bytes for all large sizes, the same messages for all small ones.
        share = min(1.0, 2_048 / max(1, size))
        found = {}
        for kind, flags in (("transient", ()), ("persistent", ("--flag", "persistent"))):
            remove(self.case.broker, QUEUE)
            durable = "--no-auto-delete" if flags else "--auto-delete"
            found[f"{kind} message"] = self.case.flow(
                "--queue", QUEUE, durable, "--size", str(size), "--confirm", window, *flags,
                share=share,
            )  # fmt: skip
        remove(self.case.broker, QUEUE)
        return found


class Unacked(Axis):
    """Messages that one consumer holds, and acks one by one in random order."""

    name = "unacked"
    sizes = (10, 1_000, 10_000, 100_000, 1_000_000)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._publisher = Publisher(case.broker)
        self.closers.append(self._publisher.close)
        self._holder = Holder(case.broker, QUEUE.encode())
        self.closers.append(self._holder.close)
        self._rng = random.Random(1)

    def grow(self, size: int) -> dict[str, float]:
        """Publish, deliver and ack that many, again and again."""
        octets = [publish_octets(QUEUE.encode(), 10)] * size

        def step(counting: Meter) -> None:
            self._publisher.publish(octets)
            tags = self._holder.take(size)
            self._rng.shuffle(tags)
            with counting.counts(size):
                self._holder.ack(tags)

        return {"ack in random order": self.case.repeated(step)}


class Depth(Axis):
    """Persistent messages of 100 B that wait in a queue."""

    name = "depth"
    sizes = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._publisher = Publisher(case.broker)
        self.closers.append(self._publisher.close)
        self._filled = 0

    def grow(self, size: int) -> dict[str, float]:
        """Fill the queue; then publish at its end and get at its head, as many of each."""
        scenario, broker = self.case.scenario, self.case.broker
        scenario.fill(broker, QUEUE, size - self._filled, "--size", "100")
        self._filled = size
        octets = [publish_octets(QUEUE.encode(), 100, persistent=True)] * STEP
        gets: list[Method] = [BasicGet(QUEUE.encode(), no_ack=True)] * STEP
        publishing = self.case.once()

        def step(getting: Meter) -> None:
            with publishing.counts(STEP):
                self._publisher.publish(octets)
            with getting.counts(STEP):
                request_all(self._publisher.client, gets)

        get_us = self.case.repeated(step)
        return {"publish 100 B, persistent": publishing.cpu_us, "get, without ack": get_us}


class Priorities(Axis):
    """Levels of a priority queue (x-max-priority); messages have random ones."""

    name = "priorities"
    sizes = (1, 10, 100, 255)

    def grow(self, size: int) -> dict[str, float]:
        """A flow through a new queue with that many levels."""
        remove(self.case.broker, QUEUE)
        arguments = ("--queue", QUEUE, "--queue-args", f"x-max-priority={size}", "--size", "100")
        levels = ("--priorities", str(size))
        return {"message of 100 B": self.case.flow(*arguments, *levels, "--confirm", "1000")}
