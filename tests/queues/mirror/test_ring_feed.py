"""What a payload of a master has, and what a copy makes of payloads that it should not get."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter, write_i64_be

from tests.support.stores.model_store import NOW_MS, ModelHost
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED, MAXLEN
from warrenmq.queues.mirror.applier import MirrorApplier, StaleEpochError, UnknownEpochError
from warrenmq.queues.mirror.records import (
    DELIVERED,
    EPOCH,
    LEVEL,
    PUBLISH,
    READERS,
    RETURN_COUNT,
    SEQ_END,
    SETTLED,
    SPARED,
    PublishedReader,
    read_readers,
    read_runs,
    write_epoch,
    write_handled,
    write_level,
    write_publish,
    write_published,
    write_return_counts,
    write_settled,
)
from warrenmq.queues.mirror.ring_feed import (
    EPOCH_GAP,
    LARGE_BYTES,
    RingFeed,
    epoch_start,
    next_start,
)
from warrenmq.queues.queue import Queue
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.remote.link_records import MalformedRecordError, RecordReader
from warrenmq.queues.settings import QueueSettings, QueueTraits
from warrenmq.store.model.message import Message, QueueLedger

ADDRESS = b"\x00\x01q"
# The first seq id of the first epoch of a new queue.
FIRST = 2 * EPOCH_GAP


class Owner:
    def __init__(self) -> None:
        self.changes = 0

    def feed_changed(self) -> None:
        self.changes += 1


class LeveledHost(ModelHost):
    """A vhost that numbers levels."""

    def new_level(self, owner: QueueLedger, priority: int) -> int:
        return 100 * int(owner.queue_id) + priority


def message(body: bytes = b"x", persistent: bool = True) -> Message:
    return Message(ADDRESS, b"\x00\x00", body, persistent, NOW_MS)


def new_queue(host: ModelHost, traits: QueueTraits | None = None, ttl_ms: int = -1) -> Queue:
    queue_settings = QueueSettings(message_ttl_ms=ttl_ms, traits=traits or QueueTraits())
    definition = QueueDefinition(b"q", 1, True, False, None, b"", queue_settings)
    return Queue(definition, host, NOW_MS)


def new_copy(traits: QueueTraits | None = None, host: LeveledHost | None = None) -> MirrorApplier:
    queue = new_queue(host or LeveledHost(), traits)
    queue.begin_hidden()
    applier = MirrorApplier(queue)
    applier.reopen(lambda: None)
    return applier


class Master:
    """A queue in its first epoch, and what is published and taken there."""

    def __init__(self, traits: QueueTraits | None = None, ttl_ms: int = -1) -> None:
        self.host = LeveledHost()
        self.queue = new_queue(self.host, traits, ttl_ms)
        self.owner = Owner()
        self.feed = RingFeed(self.queue, self.owner.feed_changed)
        assert next_start(self.queue, 0) == FIRST
        self.feed.begin(1, FIRST)

    def publish(self, body: bytes = b"x", priority: int = 0, persistent: bool = True) -> None:
        assert self.queue.publish(message(body, persistent), -1, NOW_MS, priority=priority)

    def take(self, no_ack: bool = False) -> Entry:
        entry = self.host.take(self.queue, no_ack)
        assert entry is not None
        return entry

    def payload(self) -> bytes:
        return self.feed.take(1)


def read(payload: bytes) -> list[tuple[object, ...]]:
    """The records of a payload: each its kind and what it says."""
    reader = RecordReader(payload)
    reader.integer()
    records: list[tuple[object, ...]] = []
    while reader.has_more():
        kind = reader.octet()
        if kind == EPOCH:
            epoch = reader.integer()
            starts = [(reader.octet(), reader.integer()) for _ in range(reader.number())]
            records.append((kind, epoch, starts))
        elif kind == PUBLISH:
            level, first, count = reader.octet(), reader.integer(), reader.number()
            one = PublishedReader()
            bodies = [one.read(reader).body for _ in range(count)]
            records.append((kind, level, first - FIRST, bodies))
        elif kind in (DELIVERED, SPARED):
            records.append((kind, reader.octet(), near(reader)))
        elif kind == SETTLED:
            records.append((kind, reader.octet(), reader.octet(), near(reader)))
        elif kind == RETURN_COUNT:
            counts = [(reader.integer() - FIRST, reader.number()) for _ in range(reader.number())]
            records.append((kind, counts))
        elif kind == LEVEL:
            records.append((kind, reader.octet()))
        elif kind == READERS:
            parts = read_readers(reader)
            records.append((kind, [(each.group, each.acked, each.reserved) for each in parts]))
        else:
            records.append((kind,))
    return records


def near(reader: RecordReader) -> list[tuple[int, int]]:
    return [(int(first - FIRST), int(last - FIRST)) for first, last in read_runs(reader)]


def test_a_payload_has_the_operations_of_a_turn_merged_and_in_the_order_of_kinds() -> None:
    master = Master()
    master.payload()
    for body in (b"a", b"b", b"c", b"d"):
        master.publish(body)
    taken = [master.take(), master.take(), master.take()]
    assert master.owner.changes == 2
    assert read(master.payload()) == [
        (PUBLISH, 0, 0, [b"a", b"b", b"c", b"d"]),
        (DELIVERED, 0, [(0, 2)]),
    ]
    assert master.payload() == b"" and master.feed.gathered_bytes == 0
    for entry in reversed(taken):
        master.host.settle(entry)
    assert read(master.payload()) == [(SETTLED, 0, ACKED, [(0, 2)])]


def test_what_is_settled_in_its_own_turn_goes_without_content() -> None:
    master = Master()
    master.payload()
    master.publish(b"a")
    master.publish(b"b" * 5000)
    master.publish(b"c")
    taken = [master.take(), master.take()]
    master.host.settle(taken[1])
    assert master.feed.gathered_bytes < 1000
    assert read(master.payload()) == [
        (PUBLISH, 0, 0, [b"a"]),
        (PUBLISH, 0, 2, [b"c"]),
        (DELIVERED, 0, [(0, 0)]),
        (SETTLED, 0, ACKED, [(1, 1)]),
    ]
    master.queue.purge(NOW_MS)
    master.host.settle(taken[0])
    master.payload()
    master.publish(b"d")
    master.queue.purge(NOW_MS)
    ((kind, *_),) = read(master.payload())
    assert kind == SETTLED


def test_of_deliveries_and_returns_a_payload_has_the_last_state() -> None:
    master = Master()
    master.publish()
    master.payload()
    first = master.take()
    master.host.out.remove(first)
    master.queue.put_back([first], NOW_MS)
    assert read(master.payload()) == [(SPARED, 0, [(0, 0)])]
    again = master.take()
    master.host.out.remove(again)
    master.queue.put_back([again], NOW_MS)
    master.take()
    assert read(master.payload()) == [(DELIVERED, 0, [(0, 0)])]


def test_a_confirm_names_the_payload_that_carries_its_message() -> None:
    master = Master()
    assert master.feed.carrier == 1
    master.payload()
    assert master.feed.carrier == 1
    master.publish()
    assert master.feed.carrier == 2
    assert not master.feed.is_large()
    master.publish(bytes(LARGE_BYTES))
    assert master.feed.is_large()
    master.payload()
    assert (master.feed.carrier, master.feed.taken_count) == (2, 2)
    assert not master.feed.is_large()


def test_returns_of_a_quorum_queue_are_counted_at_its_copies() -> None:
    traits = QueueTraits(is_quorum=True)
    master = Master(traits)
    copy = new_copy(traits)
    master.publish()
    master.host.requeue(master.take())
    master.host.requeue(master.take())
    payload = master.payload()
    copy.apply(payload, NOW_MS)
    copy.apply(payload, NOW_MS)
    assert copy.queue.return_counts == {FIRST: 2} == master.queue.return_counts
    master.host.settle(master.take())
    copy.apply(master.payload(), NOW_MS)
    assert copy.queue.return_counts == {} and copy.queue.ready_count == 0
    copy.apply(payload, NOW_MS)
    assert copy.queue.return_counts == {}


def test_the_parts_of_reader_groups_come_behind_what_they_speak_of() -> None:
    """All of them, as they are when the payload leaves; a copy keeps no others."""
    master = Master()
    assert read(master.payload())[-1] == (READERS, [])
    parts = [ReaderPart(b"g", 7, "q.*", FIRST, FIRST + 1), ReaderPart(b"h", 1, "", 0, 0)]
    master.feed.tell_readers()
    assert master.feed.has_operations
    master.host.parts[master.queue.id] = parts
    master.publish(b"a")
    payload = master.payload()
    assert read(payload) == [
        (PUBLISH, 0, 0, [b"a"]),
        (READERS, [(b"g", FIRST, FIRST + 1), (b"h", 0, 0)]),
    ]
    master.feed.repeat(0, FIRST)
    assert read(master.payload())[-1] == (READERS, [(b"g", FIRST, FIRST + 1), (b"h", 0, 0)])
    host = LeveledHost()
    copy = new_copy(host=host)
    assert copy.apply(Master().payload(), NOW_MS)
    copy.apply(payload, NOW_MS)
    (told, _) = host.parts[copy.queue.id]
    assert (told.group, told.epoch, told.pattern) == (b"g", 7, "q.*")
    assert (told.acked, told.reserved) == (FIRST, FIRST + 1)


def test_levels_go_by_their_priorities() -> None:
    traits = QueueTraits(max_priority=5)
    master = Master(traits)
    copy = new_copy(traits)
    master.publish(b"a")
    master.publish(b"b", 3)
    master.publish(b"c", 5)
    payload = master.payload()
    assert [record[0] for record in read(payload)] == (
        [EPOCH, LEVEL, LEVEL] + 3 * [PUBLISH] + [SETTLED, READERS]
    )
    for _ in range(2):
        copy.apply(payload, NOW_MS)
    assert copy.queue.epoch == 1
    levels = [(copy.queue.level_of(one.ledger), one.ready.count) for one in copy.queue.backings()]
    assert levels == [(5, 1), (3, 1), (0, 1)]
    # No level may use seq ids that an earlier epoch may have used there.
    for backing in master.queue.backings() + copy.queue.backings():
        assert backing.ledger.next_seq == FIRST + 1
        assert backing.ledger.epoch == 1
    master.host.settle(master.take())
    copy.apply(master.payload(), NOW_MS)
    assert copy.queue.backings()[0].ready.count == 0
    copy.check()


def test_a_copy_keeps_expiry_flags_and_time_of_a_message() -> None:
    master = Master(ttl_ms=700)
    copy = new_copy()
    master.queue.publish(message(persistent=False), -1, NOW_MS, is_known=True)
    copy.apply(master.payload(), NOW_MS + 5000)
    entry = copy.queue.backing.ready.at(0)
    assert (entry.expiry_ms, entry.persistent, entry.redelivered) == (NOW_MS + 700, False, True)
    assert entry.message.timestamp_ms == NOW_MS


def test_a_copy_keeps_the_mark_of_a_message_that_came_marked() -> None:
    """A mirror that joins makes the master say once more which messages were handed out."""
    master = Master()
    copy = new_copy()
    master.queue.publish(message(), -1, NOW_MS, is_known=True)
    copy.apply(master.payload(), NOW_MS)
    master.feed.repeat(0, master.queue.next_seq)
    copy.apply(master.payload(), NOW_MS)
    assert copy.queue.backing.ready.at(0).redelivered


def test_a_master_that_ends_gathers_nothing_more() -> None:
    master = Master()
    master.payload()
    master.feed.end()
    master.publish()
    assert master.payload() == b""


def test_i5_a_copy_refuses_what_is_not_of_its_epoch() -> None:
    old, new = Master(), Master()
    new.feed.end()
    new.feed = RingFeed(new.queue, new.owner.feed_changed)
    start = next_start(new.queue, FIRST)
    assert start == FIRST + EPOCH_GAP
    new.feed.begin(2, start)
    copy = new_copy()
    old.publish()
    copy.apply(old.payload(), NOW_MS)
    with pytest.raises(UnknownEpochError):
        copy.apply(payload_of(2), NOW_MS)
    copy.apply(new.feed.take(2), NOW_MS)
    assert copy.epoch == 2 and copy.queue.next_seq == FIRST + EPOCH_GAP
    old.publish()
    with pytest.raises(StaleEpochError):
        copy.apply(old.payload(), NOW_MS)
    with pytest.raises(StaleEpochError):
        copy.begin_sync(1, NOW_MS)
    # The new master has never got the message that the old one had published.
    assert copy.queue.ready_count == 0
    copy.check()


def test_no_two_epochs_share_seq_ids() -> None:
    assert epoch_start(1, 0) == FIRST
    # Two nodes that know as much of the queue, one after the other: the second knows the record.
    assert epoch_start(FIRST + 5, FIRST) == FIRST + 2 * EPOCH_GAP
    assert epoch_start(FIRST + 5, FIRST + 2 * EPOCH_GAP) == FIRST + 3 * EPOCH_GAP


# -- malformed payloads ----------------------------------------------------------------------------


def payload_of(epoch: int, *, records: bytes = b"") -> bytes:
    out = BytesWriter()
    write_i64_be(out, epoch)
    return out.getvalue() + records


def every_kind() -> bytes:
    out = BytesWriter()
    write_i64_be(out, 1)
    write_epoch(out, 1, [(0, FIRST), (1, FIRST)])
    write_level(out, 2)
    write_publish(out, 0, FIRST, 2)
    write_published(out, message(b"one"), True, False, 0)
    write_published(out, message(b"two"), False, True, NOW_MS)
    write_handled(out, DELIVERED, 0, [(FIRST, FIRST + 1)])
    write_handled(out, SPARED, 0, [(FIRST, FIRST)])
    write_settled(out, 0, MAXLEN, [(FIRST, FIRST), (FIRST + 2, FIRST + 4)])
    write_return_counts(out, [(FIRST + 1, 3)])
    return out.getvalue()


def test_a_payload_that_ends_early_is_malformed_at_every_byte() -> None:
    payload = every_kind()
    whole = new_copy(QueueTraits(max_priority=5))
    whole.apply(payload, NOW_MS)
    assert whole.queue.ready_count == 1
    ends = 0
    for size in range(len(payload)):
        copy = new_copy(QueueTraits(max_priority=5))
        try:
            copy.apply(payload[:size], NOW_MS)
        except MalformedRecordError:
            continue
        except UnknownEpochError:
            assert size == 8
            continue
        ends += 1
        copy.check()
    # It may end between two records.
    assert ends == 6


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_applied_or_refused(data: st.DataObject) -> None:
    payload = bytearray(every_kind())
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(8, len(payload) - 1))] = data.draw(st.integers(0, 255))
    copy = new_copy(QueueTraits(max_priority=5))
    with suppress(MalformedRecordError, UnknownEpochError):
        copy.apply(bytes(payload), NOW_MS)
    copy.check()


@pytest.mark.parametrize(
    "runs",
    [
        [(5, 4)],
        [(0, 4)],
        [(5, 6), (7, 8)],
        [(5, 6), (6, 8)],
        [(9, 9), (5, 6)],
        [(1, SEQ_END)],
        [(-3, 5)],
    ],
)
def test_runs_that_do_not_ascend_are_malformed(runs: list[tuple[int, int]]) -> None:
    out = BytesWriter()
    write_i64_be(out, 0)
    write_settled(out, 0, ACKED, [(first, last) for first, last in runs])
    with pytest.raises(MalformedRecordError):
        new_copy().apply(out.getvalue(), NOW_MS)


@pytest.mark.parametrize(
    "records",
    [
        b"\x63",
        # A level that the queue cannot have.
        bytes([LEVEL, 1]),
        # A message with an unknown flag, and one that expired in 1970.
        bytes([PUBLISH, 0]) + (5).to_bytes(8) + (1).to_bytes(4) + b"\x08" + bytes(40),
        bytes([PUBLISH, 0]) + (5).to_bytes(8) + (1).to_bytes(4) + b"\x04" + bytes(40),
        # A reader group that has acked more than it had reserved, and one with a pattern of bytes.
        bytes([READERS]) + (1).to_bytes(4) + b"\x01g" + bytes(12) + (2).to_bytes(8) + bytes(8),
        bytes([READERS]) + (1).to_bytes(4) + b"\x01g" + bytes(11) + b"\x01\xff" + bytes(16),
        # Another epoch than that of the payload.
        bytes([EPOCH]) + (7).to_bytes(8) + (0).to_bytes(4),
    ],
)
def test_records_that_make_no_sense_are_malformed(records: bytes) -> None:
    copy = new_copy()
    with pytest.raises(MalformedRecordError):
        copy.apply(payload_of(0, records=records), NOW_MS)
    copy.check()
