"""What clients know of their channels, consumers and deliveries."""

from collections import deque
from collections.abc import Callable

from warren.testing.oracle import Content, Copy, QueueModel
from warren.testing.simulated_client import SimulatedClient
from warren.wire.method import Method


class ConsumerModel:
    """A consumer as its client knows it."""

    def __init__(self, tag: bytes, queue: QueueModel, prefetch: int, no_ack: bool) -> None:
        self.tag = tag
        self.queue = queue
        self.prefetch = prefetch
        self.no_ack = no_ack
        self.unacked = 0


class Delivery:
    """An unacked delivery."""

    def __init__(self, copy: Copy, consumer: ConsumerModel | None) -> None:
        self.copy = copy
        self.consumer = consumer


class ChannelModel:
    """A channel as its client knows it."""

    def __init__(self, number: int, mode: str, client: SimulatedClient) -> None:
        self.number = number
        self.mode = mode
        self.client = client
        self.publish_count = 0
        self.unconfirmed: dict[int, list[Copy]] = {}
        self.unacked: dict[int, Delivery] = {}
        self.consumers: dict[bytes, ConsumerModel] = {}
        self.consumer_count = 0
        # Answers that must come, in this order, and what they mean.
        self.expected: deque[tuple[type[Method], Callable[[Method, bytes, bytes], None]]] = deque()
        # What an open transaction will do.
        self.publishes: list[tuple[Content, list[QueueModel], int]] = []
        self.settles: list[tuple[dict[int, Delivery], bool]] = []
        self.is_lost = False
