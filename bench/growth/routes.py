"""Bindings of one exchange, and queues that get a copy of each message."""

from abc import abstractmethod

from bench.growth.axis import QUEUE, Axis, Case, Meter
from bench.growth.clients import Publisher, publish_octets, request_all
from warrenmq.perf.publisher import PublishFrames
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.method import Method
from warrenmq.wire.methods import ExchangeDeclare, QueueBind, QueueDeclare, QueueDelete, QueuePurge
from warrenmq.wire.properties import Properties

EXCHANGE = b"bench-growth"
# Messages of one step; the queue drops older ones.
STEP = 500
KEPT: dict[str, object] = {"x-max-length": 1000}


class Bindings(Axis):
    """Bindings of one queue to one exchange; one of them matches a message, wherever it is."""

    type = b""
    sizes = (100, 1_000, 10_000, 100_000)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._publisher = Publisher(case.broker)
        self.closers.append(self._publisher.close)
        self._bound = 0
        arguments = encode_table(fields_from_python(KEPT))
        self._publisher.client.request(QueueDeclare(queue=QUEUE.encode(), arguments=arguments))
        self._publisher.client.request(ExchangeDeclare(exchange=EXCHANGE, type=self.type))

    @abstractmethod
    def bind(self, number: int) -> QueueBind:
        """The binding with a number."""

    @abstractmethod
    def publish(self, number: int) -> bytes:
        """A message that the binding with this number matches."""

    def grow(self, size: int) -> dict[str, float]:
        """Bind, then publish messages that bindings all over match."""
        binds: list[Method] = [self.bind(number) for number in range(self._bound, size)]
        meter = self.case.once()
        with meter.counts(len(binds)):
            request_all(self._publisher.client, binds)
        self._bound = size
        octets = [self.publish(number * 7919 % size) for number in range(STEP)]

        def step(counting: Meter) -> None:
            with counting.counts(STEP):
                self._publisher.publish(octets)

        return {"bind": meter.cpu_us, "publish to one of them": self.case.repeated(step)}


class TopicBindings(Bindings):
    """Patterns with a wildcard, on a topic exchange."""

    name = "topic-bindings"
    type = b"topic"

    def bind(self, number: int) -> QueueBind:
        return QueueBind(QUEUE.encode(), EXCHANGE, b"site%d.*.rack%d" % (number // 100, number))

    def publish(self, number: int) -> bytes:
        key = b"site%d.load.rack%d" % (number // 100, number)
        return publish_octets(key, 100, EXCHANGE)


class HeadersBindings(Bindings):
    """Two headers to compare, on a headers exchange."""

    name = "headers-bindings"
    type = b"headers"

    def bind(self, number: int) -> QueueBind:
        table = {"x-match": "all", "site": number // 100, "rack": number}
        arguments = encode_table(fields_from_python(table))
        return QueueBind(QUEUE.encode(), EXCHANGE, arguments=arguments)

    def publish(self, number: int) -> bytes:
        headers = encode_table(fields_from_python({"site": number // 100, "rack": number}))
        properties = Properties(headers=headers).encode()
        return PublishFrames(EXCHANGE, b"", properties, False, 100, 131072).stamped(1)


class FanOut(Axis):
    """Queues that each get a copy of a message from a fanout exchange."""

    name = "fan-out"
    sizes = (1, 10, 100, 1_000)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._publisher = Publisher(case.broker)
        self.closers.append(self._publisher.close)
        self._publisher.client.request(ExchangeDeclare(exchange=EXCHANGE, type=b"fanout"))
        self._names: list[bytes] = []

    def grow(self, size: int) -> dict[str, float]:
        """Bind more queues; publish, and count the copies. The copies go with their queues."""
        client = self._publisher.client
        request_all(client, [QueueDelete(queue=name) for name in self._names])
        self._names = [b"bench-growth-%d" % number for number in range(size)]
        request_all(client, [QueueDeclare(queue=name) for name in self._names])
        request_all(client, [QueueBind(name, EXCHANGE) for name in self._names])
        messages = max(1, min(STEP, self.case.scenario.options.messages // size))
        octets = [publish_octets(b"", 100, EXCHANGE)] * messages
        # Copies wait in their queues, so their number is limited.
        left = max(1, self.case.scenario.options.messages // (messages * size))

        def step(counting: Meter) -> None:
            nonlocal left
            left -= 1
            with counting.counts(messages * size):
                self._publisher.publish(octets)
            if left == 0:
                left = max(1, self.case.scenario.options.messages // (messages * size))
                for name in self._names:
                    client.request(QueuePurge(queue=name))

        return {"publish, for each copy": self.case.repeated(step)}
