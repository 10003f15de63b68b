"""The readers of what clients send: AMQP, the admin protocol, PROXY headers, blocks for sinks."""

from contextlib import suppress

from librt.strings import BytesWriter

from tests.fuzz.campaign import Reader
from tests.fuzz.framed import FrameLayout
from tests.support.brokers.administered_broker import AdministeredBroker
from tests.support.brokers.amqp_frames import PROTOCOL_HEADER
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.stores.store_driver import close_drivers
from warrenmq.admin.protocol.requests import decode_reply, decode_request
from warrenmq.admin.protocol.sinks import FinishStage, OpenStage, StageMessages, StageOpened
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.server.listening.proxy_protocol import ProxyError, parse_header
from warrenmq.wire.encode import write_method_frame
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.field_table import decode_table, encode_table, to_python, validate_table
from warrenmq.wire.frames import FRAME_METHOD, FrameBuffer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import decode_method
from warrenmq.wire.properties import decode_properties, delivery_mode

# Time that a conversation may take, by the simulated clock.
_WAIT_MS = 50
_TURNS_MAX = 100


def method_payload(method: Method) -> bytes:
    """The bytes of a method without its frame."""
    out = BytesWriter()
    write_method_frame(out, 1, method)
    return out.getvalue()[7:-1]


def read_method(data: bytes) -> None:
    """Decode a method; what it says is encoded and decoded to the same again."""
    method = decode_method(data, 0, len(data))
    again = method_payload(method)
    # The first pass removes reserved arguments and unused bits; the second may change nothing.
    assert method_payload(decode_method(again, 0, len(again))) == again


def read_table(data: bytes) -> None:
    """Decode a field table."""
    table = decode_table(data)
    validate_table(data, 0, len(data))
    to_python(table)
    again = encode_table(table)
    assert encode_table(decode_table(again)) == again


def read_properties(data: bytes) -> None:
    """Decode the properties of a content header; both of their readers agree."""
    mode = delivery_mode(data)
    properties = decode_properties(data)
    assert mode == (properties.delivery_mode or 0)
    again = properties.encode()
    assert decode_properties(again).encode() == again


def read_frames(data: bytes) -> None:
    """Read a stream of frames, in pieces whose sizes the data decide; decode its methods."""
    buffer = FrameBuffer(4096)
    at = 0
    while at < len(data):
        size = 1 + data[at] % 200
        buffer.feed(data[at : at + size])
        at += size
        while (kind := buffer.next_frame()) >= 0:
            assert 0 <= buffer.start <= buffer.end < len(buffer.data)
            if kind == FRAME_METHOD:
                decode_method(buffer.data, buffer.start, buffer.end)


def read_conversation(data: bytes) -> None:
    """Everything that a client sends behind the protocol header, to a whole broker.

    A connection never raises: it logs a bug of its own, which the campaign notices.
    """
    memory = MemoryBroker()
    try:
        link = memory.connect()
        link.send(PROTOCOL_HEADER + data)
        memory.advance(_WAIT_MS)
        link.close()
        memory.advance(_WAIT_MS)
        memory.vhost.check()
    finally:
        _empty(memory.vhost, memory.now_ms)
        close_drivers()


def read_admin_session(data: bytes) -> None:
    """Requests of a client of the admin protocol, its login first; each gets a reply."""
    node = MemoryNode(MemoryDisk())
    try:
        node.declare(b"q")
        node.publish(b"q", b"body")
        node.commit()
        client = MemoryClient(node, log_in=False)
        client.session.receive(data)
        for _ in range(_TURNS_MAX):
            node.commit()
            node.clock.advance(10)
        client.replies()
        client.session.connection_lost()
        node.commit()
        node.vhost.check()
    finally:
        _empty(node.vhost, node.clock.now_ms())
        close_drivers()


def read_admin_payload(data: bytes) -> None:
    """A request as a node decodes it; the same bytes as a reply, as a client decodes that."""
    with suppress(ValueError):
        decode_request(data)
    decode_reply(data)


def read_staged_block(data: bytes) -> None:
    """A block of messages that a Spark sink stages."""
    node = MemoryNode(MemoryDisk())
    try:
        node.declare(b"q")
        client = MemoryClient(node)
        opened = client.must(OpenStage("sink", 1))
        assert isinstance(opened, StageOpened)
        client.ask(StageMessages(opened.stage, memoryview(data)))
        client.ask(FinishStage(opened.stage, 1))
        node.vhost.check()
    finally:
        _empty(node.vhost, node.clock.now_ms())
        close_drivers()


def _empty(vhost: Vhost, now_ms: int) -> None:
    """Delete the queues: the cycle collector does not track entries, which keep the broker."""
    for queue in list(vhost.queues.values()):
        queue.delete(now_ms)


def read_definitions(data: bytes) -> None:
    """Import definitions; what was imported can be exported, and imported again."""
    node = AdministeredBroker()
    try:
        if not isinstance(node.import_definitions(data), Exception):
            node.imported(node.exported())
    finally:
        close_drivers()


READERS = {
    "method": Reader(read_method, (ConnectionException,)),
    "table": Reader(read_table, (ConnectionException,)),
    "properties": Reader(read_properties, (ConnectionException,)),
    "frames": Reader(read_frames, (ConnectionException,), FrameLayout(lead=3, tail=1).mutator()),
    "connection": Reader(
        read_conversation,
        (),
        FrameLayout(lead=3, tail=1, spared=3).mutator(),
        fixed_bytes=8 << 20,
        bytes_per_byte=2048,
    ),
    "admin": Reader(
        read_admin_session,
        (),
        FrameLayout(spared=1).mutator(),
        fixed_bytes=8 << 20,
        bytes_per_byte=2048,
    ),
    "admin-payload": Reader(read_admin_payload, (ValueError,)),
    "staged-block": Reader(read_staged_block, (), fixed_bytes=8 << 20),
    "definitions": Reader(read_definitions, (), fixed_bytes=16 << 20, bytes_per_byte=2048),
    "proxy": Reader(parse_header, (ProxyError,), fixed_bytes=1 << 16),
}
