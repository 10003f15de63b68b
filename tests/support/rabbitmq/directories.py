"""Data directories that a real RabbitMQ made, with a ledger of the messages in them.

`make` fills one private node with queues of every kind and kills it (`killed`), then lets it
recover and stops it in order (`stopped`): both directories must give the same messages. Every
publish is confirmed, so nothing is uncertain.
"""

import base64
import hashlib
import json
import random
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import RabbitmqBroker
from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import Message, Peer
from warrenmq.tables.rabbitmq.import_plan import directory_name, plan
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.methods import (
    BasicAck,
    BasicGet,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTuneOk,
    QueuePurge,
)
from warrenmq.wire.properties import NO_PROPERTIES, Properties

PERSISTENT = Properties(delivery_mode=2).encode()
TRANSIENT = Properties(delivery_mode=1).encode()
# Longer than any test here.
EXPIRY_MS = 3_600_000
# Journal file of the queue `journal`, below a node's directory.
JOURNAL_PATH = Path(
    "msg_stores/vhosts",
    directory_name(b"/"),
    "queues",
    directory_name(b"queue", b"/", b"journal"),
    "journal.jif",
)
# Size of that file (bytes) above which it still has the queue's messages.
JOURNAL_BYTES_MIN = 10_000
JOURNAL_TRIES = 5

# A field of every type that RabbitMQ's table parser knows.
EVERY_TYPE: dict[str, Field] = {
    "bool": Field(ord("t"), True),
    "byte": Field(ord("b"), -7),
    "ubyte": Field(ord("B"), 200),
    "short": Field(ord("s"), -300),
    "ushort": Field(ord("u"), 60000),
    "int": Field(ord("I"), -70000),
    "uint": Field(ord("i"), 4_000_000_000),
    "long": Field(ord("l"), -(1 << 60)),
    "float": Field(ord("f"), 1.5),
    "double": Field(ord("d"), 3.141592653589793),
    "decimal": Field(ord("D"), (2, 12345)),
    "text": Field(ord("S"), "grüße".encode()),
    "octets": Field(ord("x"), bytes(range(256))),
    "time": Field(ord("T"), 1_700_000_000),
    "void": Field(ord("V"), None),
    "table": Field(ord("F"), {"inner": Field(ord("F"), {"deep": Field(ord("I"), 1)})}),
    "array": Field(ord("A"), [Field(ord("I"), 1), Field(ord("S"), b"two"), Field(ord("A"), [])]),
}
EVERY_PROPERTY = Properties(
    b"text/plain", b"gzip", encode_table(EVERY_TYPE), 2, 9, b"correlation", b"reply", str(EXPIRY_MS).encode(),
    b"message-id", 1_700_000_000, b"type", b"guest", b"app", b"cluster",
)  # fmt: skip

OTHER_VHOST = "other vhost ü"
_SALT = b"salt"
_INITIAL = {
    "vhosts": [{"name": "/"}, {"name": OTHER_VHOST}],
    "users": [
        {
            "name": "guest",
            "password_hash": base64.b64encode(
                _SALT + hashlib.sha256(_SALT + b"guest").digest()
            ).decode(),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
        }
    ],
    "permissions": [
        {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        for vhost in ("/", OTHER_VHOST)
    ],
}


def running(broker: RabbitmqBroker) -> RabbitmqBroker:
    """The node, started if it was not."""
    if broker.process is None:
        broker.start()
    return broker


@dataclass
class Expected:
    """One message as it was published."""

    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes


@dataclass
class RealDirectories:
    """Two states of one node, with its exported definitions and the messages of its queues.

    `queues` has the messages by (vhost, queue), in order; they were published within `published_s`,
    (first, last) time in s.
    """

    killed: Path
    stopped: Path
    definitions: Path
    queues: dict[tuple[str, str], list[Expected]]
    published_s: tuple[float, float]


class _Loader:
    """Fills one vhost of a node through one channel in confirm mode; `queues` is the ledger."""

    def __init__(self, broker: RabbitmqBroker, vhost: bytes) -> None:
        peer = Peer(SocketLink("127.0.0.1", broker.port), is_foreign=True)
        peer.start()
        peer.method(0, ConnectionTuneOk(2047, peer.frame_max, 0))
        peer.method(0, ConnectionOpen(vhost))
        peer.expect(ConnectionOpenOk)
        self.channel = peer.channel()
        self.channel.confirm_select()
        self.queues: dict[str, list[Expected]] = {}
        self._random = random.Random(5)
        self._published = 0
        self._unconfirmed: set[int] = set()

    def declare(self, name: str, **arguments: object) -> None:
        """Declare a durable queue; names of arguments as in `table`."""
        self.channel.declare(name.encode(), durable=True, arguments=table(**arguments))
        self.queues[name] = []

    def publish(
        self,
        sizes: Sequence[int],
        key: bytes,
        properties: bytes = PERSISTENT,
        exchange: bytes = b"",
    ) -> list[Expected]:
        """Publish random bytes of these sizes and wait for the confirms."""
        messages = []
        for size in sizes:
            message = Expected(exchange, key, properties, self._random.randbytes(size))
            self.channel.publish(key, message.body, properties, exchange)
            messages.append(message)
            self._published += 1
            self._unconfirmed.add(self._published)
        while self._unconfirmed:
            event = self.channel.event()
            assert isinstance(event, BasicAck)
            if event.multiple:
                self._unconfirmed = {
                    number for number in self._unconfirmed if number > event.delivery_tag
                }
            else:
                self._unconfirmed.discard(event.delivery_tag)
        return messages

    def keep(self, queue: str, sizes: Sequence[int], properties: bytes = PERSISTENT) -> None:
        """Publish to one queue, and expect the messages there."""
        self.queues[queue] += self.publish(sizes, queue.encode(), properties)

    def consume(self, queue: str, count: int, ack_every: int) -> None:
        """Take the oldest `count` messages and ack one in `ack_every`; the others stay unacked."""
        self.channel.qos(count)
        tag = self.channel.consume(queue.encode())
        expected = self.queues[queue]
        deliveries = [self.channel.message() for _ in range(count)]
        # Cancel before the acks, which make room for more deliveries.
        self.channel.cancel(tag)
        for number, delivery in enumerate(deliveries):
            assert delivery.body == expected[number].body
            if number % ack_every == 0:
                self.channel.ack(delivery.deliver.delivery_tag)
        self.queues[queue] = [
            message
            for number, message in enumerate(expected)
            if number >= count or number % ack_every
        ]

    def sizes(self, count: int, least: int, most: int) -> list[int]:
        """`count` random sizes (bytes) in [least, most)."""
        return [self._random.randrange(least, most) for _ in range(count)]


def make_node(directory: Path) -> RabbitmqBroker:
    """A node with the two vhosts, not started yet."""
    initial = directory / "initial.json"
    initial.write_text(json.dumps(_INITIAL))
    return RabbitmqBroker(directory / "node", set(), (f"load_definitions = {initial}",))


def make(broker: RabbitmqBroker, directory: Path) -> RealDirectories:
    """Fill an empty node, started or not, and stop it; takes about twenty seconds."""
    running(broker)
    began_s = time.time()
    loader = _Loader(broker, b"/")
    ledger = _fill_other_vhost(_Loader(broker, OTHER_VHOST.encode())) | _fill(loader)
    definitions = directory / "definitions.json"
    broker.control("export_definitions", str(definitions))
    _await_acks(broker, ledger)
    eventually(lambda: _has_noted(broker, ledger), "all queues noted")
    # RabbitMQ notes the directory within half a second. A node killed earlier does not find its
    # directory again and makes a second one.
    names = next(broker.node_directory().glob("quorum/*/names.dets"))
    eventually(lambda: b"%2F_quorum" in names.read_bytes(), "the quorum queue's directory noted")
    ledger["/", "journal"] = _fill_journal_and_kill(broker, loader)
    published_s = (began_s, time.time())
    shutil.copytree(broker.node_directory(), directory / "killed")
    broker.start()
    broker.stop()
    shutil.copytree(broker.node_directory(), directory / "stopped")
    return RealDirectories(
        directory / "killed", directory / "stopped", definitions, ledger, published_s
    )


def _has_noted(broker: RabbitmqBroker, ledger: dict[tuple[str, str], list[Expected]]) -> bool:
    """Whether the files of RabbitMQ's database have all queues of the ledger.

    A queue that is in no file when the node is killed is lost with its messages, although its
    declaration was answered.
    """
    noted = b"".join(
        path.read_bytes()
        for path in broker.node_directory().iterdir()
        if path.name == "LATEST.LOG" or path.stem == "rabbit_durable_queue"
    )
    return all(_queue_term(vhost, name).search(noted) for vhost, name in ledger)


def _queue_term(vhost: str, name: str) -> re.Pattern[bytes]:
    """What the name of a queue looks like in an Erlang term; atoms have two encodings."""
    parts = [text.encode() for text in (vhost, name)]
    encoded = [re.escape(b"m" + len(part).to_bytes(4) + part) for part in parts]
    return re.compile(rb"(?:d\x00\x05|w\x05)queue".join(encoded), re.DOTALL)


def _await_acks(broker: RabbitmqBroker, ledger: dict[tuple[str, str], list[Expected]]) -> None:
    """Wait until the acks are in files, since no answer confirms them.

    RabbitMQ writes an ack after 200 ms, or later on a busy machine. The node runs meanwhile: a
    count taken while it moves entries from a journal into a segment is too low or too high, and the
    next count decides.
    """
    deadline = time.monotonic() + PATIENCE_S
    expected = {name: len(messages) for name, messages in ledger.items()}
    while True:
        found = dict.fromkeys(expected, 0)
        for queue in plan(broker.node_directory()).queues:
            found[queue.vhost, queue.name] += queue.messages
        if found == expected:
            return
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(0.1)


def _fill(loader: _Loader) -> dict[tuple[str, str], list[Expected]]:
    # The queue `journal` is filled last, right before the kill.
    loader.declare("journal")
    loader.declare("small")
    loader.keep("small", loader.sizes(3000, 0, 200))
    loader.declare("stored")
    loader.keep("stored", loader.sizes(200, 4096, 30_000))
    loader.declare("mixed", x__message__ttl=EXPIRY_MS)
    loader.keep("mixed", loader.sizes(300, 0, 9000))
    # Larger than a file of the message store may be.
    loader.declare("huge")
    loader.keep("huge", [10, 18_000_000, 5000])
    loader.declare("holes")
    loader.keep("holes", loader.sizes(2500, 0, 300) + loader.sizes(100, 4096, 5000))
    loader.consume("holes", 2550, 3)
    loader.declare("drained")
    loader.keep("drained", loader.sizes(100, 0, 6000))
    loader.consume("drained", 100, 1)
    loader.declare("transient")
    for size in loader.sizes(50, 0, 9000):
        loader.keep("transient", [size])
        loader.publish([size], b"transient", TRANSIENT)
        loader.publish([size], b"transient", NO_PROPERTIES)
    loader.declare("typed")
    loader.keep("typed", [20, 8000], EVERY_PROPERTY.encode())
    loader.declare("lazy", x__queue__mode="lazy")
    loader.keep("lazy", loader.sizes(100, 0, 9000))
    loader.declare("second version", x__queue__version=2)
    loader.keep("second version", loader.sizes(4500, 0, 300) + loader.sizes(100, 3000, 9000))
    loader.consume("second version", 500, 2)
    _fill_priority_queue(loader)
    # The reader does not read such queues, but must report them.
    for kind in ("quorum", "stream"):
        loader.channel.declare(kind.encode(), durable=True, arguments=table(x__queue__type=kind))
        loader.publish([100], kind.encode())
    _fan_out(loader)
    _dead_letter(loader)
    return {("/", name): messages for name, messages in loader.queues.items()}


def _fill_priority_queue(loader: _Loader) -> None:
    loader.declare("priority", x__max__priority=3)
    by_priority: dict[int, list[Expected]] = {level: [] for level in range(4)}
    for number, size in enumerate(loader.sizes(80, 0, 6000)):
        properties = Properties(delivery_mode=2, priority=number % 5).encode()
        by_priority[min(3, number % 5)] += loader.publish([size], b"priority", properties)
    loader.queues["priority"] = [
        message for level in (3, 2, 1, 0) for message in by_priority[level]
    ]


def _fill_journal_and_kill(broker: RabbitmqBroker, loader: _Loader) -> list[Expected]:
    """Fill the queue `journal`; kill the node while its messages are confirmed and in no segment.

    A queue that is idle for a second empties its journal. On a busy machine the kill may come too
    late; then the node is filled and killed again.
    """
    for _ in range(JOURNAL_TRIES):
        expected = _fill_journal(loader)
        broker.kill()
        if (broker.node_directory() / JOURNAL_PATH).stat().st_size > JOURNAL_BYTES_MIN:
            return expected
        broker.start()
        loader = _Loader(broker, b"/")
        loader.channel.call(QueuePurge(b"journal"))
    raise AssertionError("the journal is always empty when the node is killed")


def _fill_journal(loader: _Loader) -> list[Expected]:
    loader.queues["journal"] = []
    loader.keep("journal", loader.sizes(30, 0, 6000))
    loader.consume("journal", 10, 2)
    # This publish is in one batch with the acks before it, so its confirm says that they are on
    # disk.
    loader.keep("journal", [1])
    return loader.queues["journal"]


def _dead_letter(loader: _Loader) -> None:
    """Make dead letters, whose properties RabbitMQ stores decoded.

    The deliveries of the letters show how RabbitMQ encodes such properties.
    """
    loader.declare("dead letters")
    loader.declare(
        "rejecting", x__dead__letter__exchange="", x__dead__letter__routing__key="dead letters"
    )
    letters = loader.publish([10, 8000], b"rejecting", EVERY_PROPERTY.encode())
    for letter in letters:
        loader.channel.reject(loader.channel.get(b"rejecting").got.delivery_tag, requeue=False)
        deadline = time.monotonic() + PATIENCE_S
        while not isinstance(item := loader.channel.call(BasicGet(b"dead letters")), Message):
            assert time.monotonic() < deadline
        assert item.body == letter.body
        loader.queues["dead letters"].append(Expected(b"", b"dead letters", item.raw, item.body))


def _fan_out(loader: _Loader) -> None:
    loader.channel.exchange(b"fan-out", b"fanout", durable=True)
    for name in ("fan-a", "fan-b", "fan-c"):
        loader.declare(name)
        loader.channel.bind(name.encode(), b"fan-out")
    messages = loader.publish(loader.sizes(40, 0, 12_000), b"some.key", exchange=b"fan-out")
    for name in ("fan-a", "fan-b", "fan-c"):
        loader.queues[name] = list(messages)
    loader.consume("fan-b", 30, 2)


def _fill_other_vhost(loader: _Loader) -> dict[tuple[str, str], list[Expected]]:
    loader.declare("small")
    loader.keep("small", loader.sizes(20, 0, 200))
    loader.declare("grüße")
    loader.keep("grüße", loader.sizes(20, 0, 9000))
    return {(OTHER_VHOST, name): messages for name, messages in loader.queues.items()}
