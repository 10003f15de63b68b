"""RabbitMQ's files made by hand: terms, stored messages, records of indexes and message store."""

import struct
from pathlib import Path

from tests.support.rabbitmq.directories import PERSISTENT
from warrenmq.tables.rabbitmq.external_term import Atom
from warrenmq.tables.rabbitmq.import_plan import directory_name


def encode_term(term: object) -> bytes:
    """Encode `term` as Erlang does, with the version byte first."""
    return b"\x83" + _encode(term)


def _encode(term: object) -> bytes:
    match term:
        case Atom():
            text = term.encode("utf-8")
            return (
                b"w" + bytes([len(text)])
                if len(text) < 256
                else b"v" + struct.pack(">H", len(text))
            ) + text
        case bytes():
            return b"m" + struct.pack(">I", len(term)) + term
        case float():
            return b"F" + struct.pack(">d", term)
        case int():
            return _encode_integer(term)
        case tuple():
            head = (
                b"h" + bytes([len(term)])
                if len(term) < 256
                else b"i" + struct.pack(">I", len(term))
            )
            return head + b"".join(map(_encode, term))
        case []:
            return b"j"
        case list():
            return b"l" + struct.pack(">I", len(term)) + b"".join(map(_encode, term)) + b"j"
        case dict():
            pairs = [_encode(part) for pair in term.items() for part in pair]
            return b"t" + struct.pack(">I", len(term)) + b"".join(pairs)
    raise TypeError(term)


def _encode_integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"a" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"b" + struct.pack(">i", value)
    magnitude = abs(value)
    digits = magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "little")
    head = (
        b"n" + bytes([len(digits)]) if len(digits) < 256 else b"o" + struct.pack(">I", len(digits))
    )
    return head + bytes([value < 0]) + digits


def identity(number: int) -> bytes:
    """A message id."""
    return number.to_bytes(16, "big")


def message_term(
    number: int, body: bytes, properties: object = PERSISTENT, keys: tuple[bytes, ...] = (b"q",)
) -> bytes:
    """A stored message in one part; a tuple as `properties` is a decoded record."""
    is_decoded = isinstance(properties, tuple)
    content = (
        Atom("content"), 60, properties if is_decoded else Atom("none"),
        Atom("none") if is_decoded else properties, Atom("rabbit_framing_amqp_0_9_1"), [body],
    )  # fmt: skip
    exchange = (Atom("resource"), b"/", Atom("exchange"), b"some.exchange")
    return encode_term(
        (Atom("basic_message"), exchange, list(keys), content, identity(number), Atom("true"))
    )


def segment_publish(
    entry: int, number: int, term: bytes = b"", is_persistent: bool = True, expiry: int = 0
) -> bytes:
    """A publish record of a segment; without `term` the message is in the message store."""
    head = 0x8000 | (0x4000 if is_persistent else 0) | entry
    return struct.pack(">H16sQII", head, identity(number), expiry, 0, len(term)) + term


def segment_mark(entry: int) -> bytes:
    """A mark of a segment entry: the first one means delivered, the second one acked."""
    return struct.pack(">H", 0x4000 | entry)


def journal_publish(seq: int, number: int, term: bytes = b"", is_persistent: bool = True) -> bytes:
    head = (0 if is_persistent else 1 << 62) | seq
    return struct.pack(">Q16sQII", head, identity(number), 0, 0, len(term)) + term


def journal_delivered(seq: int) -> bytes:
    return struct.pack(">Q", 2 << 62 | seq)


def journal_ack(seq: int) -> bytes:
    return struct.pack(">Q", 3 << 62 | seq)


def store_record(number: int, term: bytes) -> bytes:
    """A record of the message store."""
    return struct.pack(">Q", 16 + len(term)) + identity(number) + term + b"\xff"


def make_node(directory: Path, segment_entries: int = 16, vhost: bytes = b"/") -> Path:
    """Make an empty vhost in a node's data directory; returns the directory of the vhost."""
    path = directory / "msg_stores" / "vhosts" / directory_name(vhost)
    (path / "msg_store_persistent").mkdir(parents=True)
    (path / "queues").mkdir()
    (path / ".vhost").write_bytes(vhost)
    (path / ".config").write_text(f"%% generated\n{{segment_entry_count, {segment_entries}}}.")
    return path


def make_queue(vhost: Path, name: bytes, files: dict[str, bytes]) -> Path:
    """Make the directory of a queue with these files beside its name."""
    path = vhost / "queues" / directory_name(b"queue", b"/", name)
    path.mkdir()
    (path / ".queue_name").write_bytes(b"VHOST: /\nQUEUE: " + name + b"\n")
    for file, data in files.items():
        (path / file).write_bytes(data)
    return path
