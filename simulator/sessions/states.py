"""Channels, consumers and deliveries as their clients know them."""

from collections import deque
from collections.abc import Callable
from typing import Final

from simulator.models.messages import Content, Copy, QueueModel
from simulator.simulated.client import SimulatedClient
from warrenmq.wire.method import Method
from warrenmq.wire.methods import BasicPublish

# Modes of publishing of a channel.
CONFIRM: Final = "confirm"
TRANSACTION: Final = "tx"
PLAIN: Final = "plain"


class ConsumerModel:
    """A consumer as its client knows it."""

    def __init__(self, tag: bytes, queue: QueueModel, prefetch: int, no_ack: bool) -> None:
        self.tag = tag
        self.queue = queue
        self.prefetch = prefetch
        self.no_ack = no_ack
        self.unacked = 0


class Delivery:
    """An unacked delivery; `consumer` is None for basic.get."""

    def __init__(self, copy: Copy, consumer: ConsumerModel | None) -> None:
        self.copy = copy
        self.consumer = consumer


class Unconfirmed:
    """A publish without its confirm, and the number of batches that had failed before it."""

    def __init__(self, copies: list[Copy], failed_batches: int) -> None:
        self.copies = copies
        self.failed_batches = failed_batches


class Publish:
    """A message on its way to the node; `keys` are its routing keys, with those of CC and BCC."""

    def __init__(
        self,
        content: Content,
        method: BasicPublish,
        keys: list[bytes],
        headers: dict[str, object],
        expiration_ms: int,
    ) -> None:
        self.content = content
        self.method = method
        self.keys = keys
        self.headers = headers
        self.expiration_ms = expiration_ms


class TransactionPublish:
    """A publish of an open transaction; at the commit it goes to the queues with these names."""

    def __init__(
        self, content: Content, names: list[bytes], expiration_ms: int, is_mandatory: bool
    ) -> None:
        self.content = content
        self.names = names
        self.expiration_ms = expiration_ms
        self.is_mandatory = is_mandatory


class ChannelModel:
    """A channel as its client knows it; `connection` is the number of its connection."""

    def __init__(self, number: int, connection: int, mode: str, client: SimulatedClient) -> None:
        self.number = number
        self.connection = connection
        self.mode = mode
        self.client = client
        self.publish_count = 0
        self.unconfirmed: dict[int, Unconfirmed] = {}
        # (number of the confirm, message) of mandatory messages that must be returned, in this
        # order, each before its confirm.
        self.returns: deque[tuple[int, Content]] = deque()
        self.unacked: dict[int, Delivery] = {}
        self.consumers: dict[bytes, ConsumerModel] = {}
        self.consumer_count = 0
        # Answers that must come, in this order, each with its callback.
        self.expected: deque[tuple[type[Method], Callable[[Method, bytes, bytes], None]]] = deque()
        # Publishes of the open transaction.
        self.publishes: list[TransactionPublish] = []
        # Settles of the open transaction: (deliveries by tag, requeue).
        self.settles: list[tuple[dict[int, Delivery], bool]] = []
        # Publishes that the node defers during an alarm.
        self.deferred: list[Publish] = []
        self.is_lost = False

    def is_free(self) -> bool:
        """Whether the client can send: it waits for no answer, and the node reads it."""
        return not self.expected and self.client.engine.is_reading
