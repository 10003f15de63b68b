"""`python -m bench.counts.trace DIR [PART]...`: the fixed trace, run below valgrind.

Each part has an engine of its own, warms it up, and sends N messages, then 2 N. Before, between and
after them it calls `mark`, at which callgrind writes down what it has counted so far. What 2 N cost
more than N, divided by N, is the cost of one message: whatever is paid once cancels out.

The bytes of clients are made before the first mark. Garbage collection is off: a collection costs
as much as a thousand messages, and the object that triggers it moves with every change.

Python's allocator takes 1 % more or less for the same objects, by which of its pools happen to be
full. So the cheapest parts run several times beside different ballast, and the mean counts.
"""

import gc
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from bench.counts.engine import CHANNEL, Engine
from simulator.simulated.client import method_frame
from warrenmq.broker.counters import MessageCounters
from warrenmq.perf.publisher import PublishFrames
from warrenmq.perf.topology import basic_properties
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicQos,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)

QUEUE: Final = b"trace"
EXCHANGE: Final = b"trace-topic"
# Messages that arrive together, as in one read of a socket.
GROUP: Final = 100
FRAME_MAX: Final = 131072
# The function of the C library whose calls callgrind waits for; nothing else calls it.
MARK: Final = "getppid"
# What comes before the first mark of a part, in units of its N.
WARM_UP: Final = 1


def mark() -> None:
    """Have callgrind write down what it has counted since the last mark."""
    os.getppid()


class Part(ABC):
    """One part of the trace: `run` sends groups of messages through `engine`.

    A part is made with all that it will send, `groups` groups in total.
    """

    # Messages of the shorter run.
    messages: int = 4000
    # How often the part runs, each time with another ballast and so another layout of memory.
    layouts: int = 1

    @abstractmethod
    def __init__(self, directory: Path, groups: int) -> None:
        self.engine = Engine(directory)

    @abstractmethod
    def run(self, groups: int) -> None:
        """Send the next `groups` groups; nothing is under way at the end."""

    @abstractmethod
    def check(self, counters: MessageCounters, messages: int) -> bool:
        """Whether all `messages` have gone where they should."""


def publishes(size: int, is_persistent: bool, key: bytes = QUEUE, exchange: bytes = b"") -> bytes:
    """The frames of one publish."""
    properties = basic_properties(is_persistent)
    return PublishFrames(exchange, key, properties, False, size, FRAME_MAX).stamped(0)


def group_acks(groups: int) -> list[list[bytes]]:
    """For each group one ack of all its messages."""
    return [
        [method_frame(CHANNEL, BasicAck(delivery_tag=GROUP * number, multiple=True))]
        for number in range(1, groups + 1)
    ]


def single_acks(groups: int) -> list[list[bytes]]:
    """For each group an ack of each message; the first tag is 1."""
    return [
        [method_frame(CHANNEL, BasicAck(delivery_tag=GROUP * number + tag)) for tag in _TAGS]
        for number in range(groups)
    ]


_TAGS: Final = range(1, GROUP + 1)


class Transient(Part):
    """100 B through a queue, one ack for 100 messages."""

    messages = 1600
    layouts = 4

    def __init__(self, directory: Path, groups: int) -> None:
        super().__init__(directory, groups)
        self.publisher = self.engine.connect(QueueDeclare(queue=QUEUE))
        self.consumer = self.engine.connect(
            BasicQos(prefetch_count=1000), BasicConsume(queue=QUEUE)
        )
        self.octets = publishes(100, False) * GROUP
        self.acks = self.make_acks(groups)
        self.at = 0

    def make_acks(self, groups: int) -> list[list[bytes]]:
        """What the consumer sends for each group: pieces that it writes one by one."""
        return group_acks(groups)

    def run(self, groups: int) -> None:
        engine, publisher, consumer = self.engine, self.publisher, self.consumer
        for pieces in self.acks[self.at : self.at + groups]:
            publisher.receive(self.octets, engine.now_ms)
            engine.turn()
            for piece in pieces:
                consumer.receive(piece, engine.now_ms)
                engine.turn()
        self.at += groups
        engine.settle()

    def check(self, counters: MessageCounters, messages: int) -> bool:
        return counters.acknowledged == counters.received == messages


class SingleAcks(Transient):
    """100 B through a queue, one ack a message; the acks of a group arrive together."""

    def make_acks(self, groups: int) -> list[list[bytes]]:
        return [[b"".join(acks)] for acks in single_acks(groups)]


class WrittenAcks(Transient):
    """100 B through a queue, one ack a message, and each ack has a turn of its own."""

    messages = 400

    def make_acks(self, groups: int) -> list[list[bytes]]:
        return single_acks(groups)


class Persistent(Transient):
    """Persistent 1 KiB with confirms through a durable queue; each group is one commit."""

    messages = 4000
    layouts = 1

    def __init__(self, directory: Path, groups: int) -> None:
        super().__init__(directory, groups)
        self.publisher = self.engine.connect(
            QueueDeclare(queue=b"durable", durable=True), ConfirmSelect()
        )
        self.consumer = self.engine.connect(
            BasicQos(prefetch_count=1000), BasicConsume(queue=b"durable")
        )
        self.octets = publishes(1024, True, b"durable") * GROUP

    def run(self, groups: int) -> None:
        engine, publisher, consumer = self.engine, self.publisher, self.consumer
        for (ack,) in self.acks[self.at : self.at + groups]:
            publisher.receive(self.octets, engine.now_ms)
            engine.settle()
            consumer.receive(ack, engine.now_ms)
        self.at += groups
        engine.settle()

    def check(self, counters: MessageCounters, messages: int) -> bool:
        return counters.acknowledged == counters.confirmed == counters.received == messages


# Far less than the trace publishes.
PAGING_BYTES: Final = 4194304


class Backlog(Part):
    """Persistent 1 KiB with confirms into a queue without consumer, which pages."""

    def __init__(self, directory: Path, groups: int) -> None:
        self.engine = Engine(directory, PAGING_BYTES)
        self.publisher = self.engine.connect(
            QueueDeclare(queue=QUEUE, durable=True), ConfirmSelect()
        )
        self.octets = publishes(1024, True) * GROUP

    def run(self, groups: int) -> None:
        for _ in range(groups):
            self.publisher.receive(self.octets, self.engine.now_ms)
            self.engine.settle()

    def check(self, counters: MessageCounters, messages: int) -> bool:
        held = self.engine.broker.memory_account.ram_bytes
        return counters.confirmed == messages and 0 < held < PAGING_BYTES


class Drain(Backlog):
    """A consumer takes that backlog from the disk; one ack for 100 messages."""

    def __init__(self, directory: Path, groups: int) -> None:
        super().__init__(directory, groups)
        super().run(groups)
        self.consumer = self.engine.connect(
            BasicQos(prefetch_count=GROUP), BasicConsume(queue=QUEUE)
        )
        self.acks = group_acks(groups)
        self.at = 0

    def run(self, groups: int) -> None:
        engine = self.engine
        for (ack,) in self.acks[self.at : self.at + groups]:
            self.consumer.receive(ack, engine.now_ms)
            engine.settle()
        self.at += groups

    def check(self, counters: MessageCounters, messages: int) -> bool:
        read, _ = self.engine.broker.disk_messages()
        return counters.acknowledged == messages and read > messages // 2


class Topic(Part):
    """100 B through a topic exchange with 300 bindings, to two queues that consume without acks."""

    messages = 2000

    def __init__(self, directory: Path, groups: int) -> None:
        super().__init__(directory, groups)
        queues = [b"topic-%d" % number for number in range(20)]
        binds = [
            QueueBind(queue=queues[number], exchange=EXCHANGE, routing_key=key)
            for number, key in _topic_bindings()
        ]
        self.publisher = self.engine.connect(
            ExchangeDeclare(exchange=EXCHANGE, type=b"topic"),
            *(QueueDeclare(queue=queue) for queue in queues),
            *binds,
        )
        self.consumer = self.engine.connect(
            *(BasicConsume(queue=queue, no_ack=True) for queue in queues)
        )
        self.octets = b"".join(
            publishes(100, False, b"site%d.rack%d.load" % (number % 10, number % 7), EXCHANGE)
            for number in range(GROUP)
        )

    def run(self, groups: int) -> None:
        for _ in range(groups):
            self.publisher.receive(self.octets, self.engine.now_ms)
            self.engine.turn()
        self.engine.settle()

    def check(self, counters: MessageCounters, messages: int) -> bool:
        return counters.consumed_auto_ack == 2 * messages and counters.received == messages


def _topic_bindings() -> list[tuple[int, bytes]]:
    """300 patterns, each with its queue's number; two match each key that `Topic` publishes."""
    bindings = []
    for number in range(100):
        sites, racks = number % 10, 10 + number % 10
        bindings += [(sites, b"site%d.*.load" % number), (sites, b"site%d.#.heat" % number)]
        bindings.append((racks, b"#.rack%d.*" % number))
    return bindings


PARTS: Final[dict[str, type[Part]]] = {
    "transient": Transient,
    "single-ack": SingleAcks,
    "written-ack": WrittenAcks,
    "persistent-1k": Persistent,
    "backlog": Backlog,
    "drain": Drain,
    "topic": Topic,
}


def ballast(layout: int) -> list[bytes]:
    """Objects of the sizes that Python's allocator pools, some more for each layout."""
    return [bytes(size) for size in range(0, 480, 16) for _ in range(layout * (size // 16 + 7))]


def run_part(name: str, directory: Path) -> None:
    """Run one part in all its layouts; AssertionError when messages are missing."""
    for layout in range(PARTS[name].layouts):
        held = ballast(layout)
        _run_layout(name, directory / f"{name}-{layout}")
        del held


def _run_layout(name: str, directory: Path) -> None:
    """Run one part with its three marks."""
    kind = PARTS[name]
    groups = kind.messages // GROUP
    total = (WARM_UP + 3) * groups
    part = kind(directory, total)
    part.run(WARM_UP * groups)
    mark()
    part.run(groups)
    mark()
    part.run(2 * groups)
    mark()
    counters = part.engine.broker.message_counters()
    if not part.check(counters, total * GROUP):
        raise AssertionError(f"{name}: {vars_of(counters)}")


def vars_of(counters: MessageCounters) -> str:
    """The counters as text; a compiled object has no `__dict__`."""
    names = [name for name in dir(counters) if not name.startswith("_") and name != "add"]
    return ", ".join(f"{name}={getattr(counters, name)}" for name in names)


def main(arguments: list[str]) -> int:
    gc.disable()
    directory = Path(arguments[0])
    for name in arguments[1:] or PARTS:
        run_part(name, directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
