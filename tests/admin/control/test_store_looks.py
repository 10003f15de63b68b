"""Looks into a store: who reads and who pins its files, and the segments of queues, in pages."""

from typing import cast

import pytest
from msgspec.structs import astuple

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.admin.clock import Clock
from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.control.store_looks import StoreLooks
from warrenmq.admin.protocol.stores import (
    DescribeFiles,
    DescribeSegments,
    QueueSegments,
    StoreFiles,
)
from warrenmq.admin.session_user import SessionUser
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.jobs.job import FindContents, ReadRanges, StoreJob
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.upkeep.backup_pins import BackupListener
from warrenmq.wire.properties import Properties

PERSISTENT = Properties(delivery_mode=2).encode()
LARGE = bytes(100_000)
ENTRIES = 10


class Host:
    """A fake process of a node: `jobs` are the store jobs that its worker threads carry out."""

    def __init__(self) -> None:
        self.jobs: list[StoreJob] = []

    def jobs_of(self, vhost: Vhost) -> list[StoreJob]:
        return self.jobs


class Looker:
    """A session of an administrator with a broker in memory, and a large message in its `q`."""

    def __init__(self) -> None:
        self.memory = MemoryBroker()
        self.host = Host()
        self.channel = Peer(self.memory.connect()).open().channel()
        self.channel.declare(b"q", durable=True)
        self.channel.publish(b"q", LARGE, PERSISTENT)
        self.memory.pump()
        self._replies: list[object] = []
        user = SessionUser(self.memory.broker.access, b"guest", True)
        self.looks = StoreLooks(
            cast(ControlHost, self.host),
            Permits(self.memory.broker, user),
            cast(Clock, self.memory),
            self._replies.append,
        )

    def files(self) -> StoreFiles:
        self.looks.files(DescribeFiles(vhost="/"))
        reply = self._replies.pop()
        assert isinstance(reply, StoreFiles)
        return reply

    def segments(self, queue: bytes = b"q", skip: int = 0, count: int = 100) -> QueueSegments:
        self.looks.segments(DescribeSegments(vhost="/", queue=queue, skip=skip, count=count))
        reply = self._replies.pop()
        assert isinstance(reply, QueueSegments)
        return reply


@pytest.fixture
def looker() -> Looker:
    return Looker()


def test_the_queues_whose_messages_are_read_are_the_readers_of_a_file(looker: Looker) -> None:
    (file,) = looker.memory.vhost.store.contents.persistent.files
    queue = looker.memory.vhost.queues[b"q"]
    assert [each.readers for each in looker.files().persistent] == [[]]
    looker.host.jobs = [
        ReadRanges([(file.path, 0, 9), (file.path, 50, 9), ("elsewhere", 0, 9)], queue.id),
        FindContents(file.path, [1], 999),
    ]
    found = looker.files()
    assert [each.readers for each in found.persistent] == [["a priority queue", "q"]]
    assert {name for each in found.journal for name in each.readers} == set()


class Listener(BackupListener):
    def on_checkpoint(self, ok: bool) -> None:
        assert ok


def test_a_backup_pins_files_and_holds_those_that_nothing_else_needs(looker: Looker) -> None:
    backup = looker.memory.vhost.store.backup
    assert not any(each.is_pinned for each in looker.files().persistent)
    backup.begin(Listener())
    looker.memory.pump()
    found = looker.files()
    assert [each.is_pinned for each in found.persistent] == [True]
    assert any(each.is_pinned for each in found.journal)
    assert (found.is_backed_up, found.pinned) == (True, 0)
    looker.channel.delete(b"q")
    for _ in range(4):
        looker.channel.declare(b"other", durable=True)
        looker.channel.publish(b"other", b"", PERSISTENT)
        looker.memory.pump()
        looker.channel.delete(b"other")
        looker.memory.vhost.journal.request_file()
        looker.memory.vhost.store.checkpoints.want()
        looker.memory.pump()
    assert looker.files().pinned > 0
    backup.end()
    looker.memory.vhost.store.checkpoints.want()
    looker.memory.pump()
    found = looker.files()
    assert (found.is_backed_up, found.pinned) == (False, 0)
    assert not any(each.is_pinned for each in found.journal)


def test_segments_come_in_pages_level_by_level(looker: Looker) -> None:
    looker.channel.declare(b"p", durable=True, arguments=table(x__max__priority=5))
    for priority in (0, 3):
        properties = Properties(delivery_mode=2, priority=priority).encode()
        looker.channel.publish(b"p", b"small", properties)
    looker.memory.pump()
    whole = looker.segments(b"p")
    assert (whole.total, whole.segments, whole.unindexed) == (0, [], 2)
    queue = looker.memory.vhost.queues[b"p"]
    for level in queue.backings():
        index = level.ledger.index = QueueIndex(level.ledger.queue_id, "queues/9", ENTRIES)
        level.ledger.indexed_upto = 25
        for number in range(3):
            segment = Segment(number)
            segment.size_bytes, segment.entries, segment.live_persistent = 400, 9, number
            segment.is_rewriting = number == 1
            index.segments.append(segment)
    rows = [
        (level, number, 9, number, 400, number < 2, number == 1)
        for level in (3, 0)
        for number in range(3)
    ]
    for skip, count in ((0, 100), (0, 2), (2, 3), (4, 9), (6, 1)):
        found = looker.segments(b"p", skip, count)
        assert [astuple(each) for each in found.segments] == rows[skip : skip + count]
        assert found.total == 6
