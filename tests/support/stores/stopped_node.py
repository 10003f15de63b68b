"""Data directory of a real, killed node with messages of all kinds, and copies to damage."""

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import Confirms, connect
from warrenmq.store.journal.window import WINDOW_BYTES_PER_QUEUE, WINDOW_FILES
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME
from warrenmq.store.records.record import (
    CHECKPOINT_MAGIC,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RecordWriter,
    crc_seed,
    file_header_number,
    record_length,
)
from warrenmq.wire.methods import QueuePurge, QueuePurgeOk

JOURNAL_FILE_BYTES = 1048576
SETTINGS = (f"journal_file_size_limit={JOURNAL_FILE_BYTES}", "msg_store_file_size_limit=64KiB")
# The journal's window, with the largest number of queues that the node has.
WINDOW_BYTES = WINDOW_FILES * JOURNAL_FILE_BYTES + WINDOW_BYTES_PER_QUEUE * 4
# Small messages: enough for at least three segments on disk, whenever the last checkpoint was
# taken. The journal's window has room for 25,000 of them.
SMALL_COUNT = 60_000
# Large messages, each shared by two queues.
LARGE_COUNT = 120
# Small messages that are acked, oldest first.
ACKED_COUNT = 500
# Minimum number of journal files after the last checkpoint.
NEEDED_FILES = 3
# Minimum distance (bytes) to the next checkpoint.
SPARE_BYTES = 200_000
REST_TIMEOUT_S = 60.0
# Numbers of the live messages in each queue at the end.
SMALL = range(ACKED_COUNT, SMALL_COUNT + 1)
LARGE = range(1, LARGE_COUNT + 1)
FAN = range(LARGE_COUNT)
MESSAGES = len(SMALL) + len(LARGE) + len(FAN)


def small_body(number: int) -> bytes:
    return b"small %06d " % number + b"s" * 90


def large_body(number: int) -> bytes:
    return b"large %06d " % number + b"l" * 6000


def await_rest(store: Path) -> list[int]:
    """Wait until the journal is within its window; returns the sizes (bytes) of its files.

    A node that lags on a busy machine takes a checkpoint later, and the tests know what is only in
    the journal after the last checkpoint. The sizes are of the files after the checkpoint.
    """
    deadline = time.monotonic() + REST_TIMEOUT_S
    while time.monotonic() < deadline:
        # Files may disappear or be renamed during the loop.
        with contextlib.suppress(FileNotFoundError):
            first = int.from_bytes((store / CHECKPOINT_NAME).read_bytes()[64:72], "big")
            needed = [path for path in (store / "journal").iterdir() if int(path.stem) >= first]
            sizes = [len(path.read_bytes().rstrip(b"\0")) for path in needed]
            if sum(sizes) <= WINDOW_BYTES:
                return sizes
        time.sleep(0.05)
    raise AssertionError("the journal stays above its window")


def is_far_from_checkpoint(store: Path) -> bool:
    """Whether enough journal files follow the last checkpoint and the next one is not near.

    When the oldest files go, and so what the checkpoint leaves in the journal, depends on the
    machine.
    """
    sizes = await_rest(store)
    return len(sizes) >= NEEDED_FILES and sum(sizes) <= WINDOW_BYTES - SPARE_BYTES


def make_data_directory(directory: Path) -> Path:
    """Run a node, fill it, kill it; returns its data directory."""
    node = BrokerProcess(directory, *SETTINGS)
    node.start()
    try:
        peer = connect(node)
        channel = peer.channel()
        channel.exchange(b"both", b"fanout", durable=True)
        for queue in (b"small", b"large", b"fan"):
            channel.declare(queue, durable=True)
        confirms = Confirms(channel)

        def publish(key: bytes, body: bytes, exchange: bytes = b"") -> None:
            confirms.publish(key, body, PERSISTENT, exchange, lambda: None)
            while len(confirms.waiting) > 1000:
                confirms.read(5)

        for queue in (b"large", b"fan"):
            channel.bind(queue, b"both")
        for number in range(LARGE_COUNT):
            publish(b"", large_body(number), b"both")
        for number in range(SMALL_COUNT):
            publish(b"small", small_body(number))
        confirms.drain()
        # Queue `gone` gets the bytes that are missing, and is purged.
        channel.declare(b"gone", durable=True)
        while not is_far_from_checkpoint(store_of(directory / "data")):
            for number in range(500):
                publish(b"gone", small_body(number))
            confirms.drain()
        channel.send(QueuePurge(b"gone"))
        channel.expect(QueuePurgeOk)
        for _ in range(ACKED_COUNT):
            channel.get(b"small", True)
        channel.get(b"large", True)
        # The confirms of these publishes show that the acks are durable.
        publish(b"small", small_body(SMALL_COUNT))
        publish(b"large", large_body(LARGE_COUNT))
        confirms.drain()
        # Delete a queue that shares messages.
        channel.bind(b"gone", b"both")
        publish(b"gone", large_body(1000))
        confirms.drain()
        channel.delete(b"gone")
        peer.drop()
    finally:
        node.kill()
    return directory / "data"


def copy_of(data: Path, target: Path) -> Path:
    """Copy a data directory without the reserve, which is large."""
    shutil.copytree(data, target, ignore=shutil.ignore_patterns("reserve"))
    return target


def store_of(data: Path) -> Path:
    """The store of vhost / in a data directory."""
    return data / "msg_stores/vhosts/1"


def fingerprint(directory: Path) -> dict[str, str]:
    """SHA-256 of every file, by path; the text `directory` for directories."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in sorted(directory.rglob("*"))
    }


def change(path: Path, edit: Callable[[bytearray], object]) -> None:
    """Edit the bytes of a file in place."""
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


def edit_checkpoint(store: Path, kind: int, edit: Callable[[int, bytearray], object]) -> None:
    """Edit the bodies of all records of `kind` (index, bytes) in the checkpoint; fix its CRCs."""
    path = store / CHECKPOINT_NAME
    data = path.read_bytes()
    store_id = data[12:28]
    number = file_header_number(data)
    writer = RecordWriter(store_id)
    writer.start_file(CHECKPOINT_MAGIC, number)
    at = FILE_HEADER_BYTES
    index = 0
    while at < len(data):
        length = record_length(data, at, crc_seed(store_id, number))
        body = bytearray(data[at + RECORD_HEADER_BYTES : at + length])
        if data[at + 2] == kind:
            edit(index, body)
            index += 1
        writer.raw_record(data[at + 2], bytes(body), b"")
        at += length
    path.write_bytes(b"".join(writer.take()))
