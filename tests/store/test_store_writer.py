"""A store that is written part by part equals a node's: it checks clean and has every message."""

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from warrenmq.broker.definitions.metadata import (
    Definitions,
    PutBinding,
    PutExchange,
    PutPermission,
    PutQueue,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.passwords import SHA256, hash_password
from warrenmq.offline.backup_files import incomplete_path
from warrenmq.offline.check import check_directory, check_store
from warrenmq.offline.data_directory import ToolError, VhostDirectory, files_of, opened
from warrenmq.offline.part_writer import MessageRow, PartWriter, SharedContent, Sharer, address_of
from warrenmq.offline.problems import CheckResult
from warrenmq.offline.store_plan import Part, PartManifest, QueueExtent, WriterSettings, plan_parts
from warrenmq.offline.store_writer import StoreWriter, WrittenStore
from warrenmq.store.disk.snapshot import VhostSnapshot
from warrenmq.wire.methods import BasicGetOk
from warrenmq.wire.properties import Properties

NOW_MS = 1_700_000_000_000
FAR_MS = 4_000_000_000_000


def definitions(*queues: bytes) -> Definitions:
    found = Definitions()
    found.vhosts.append(PutVhost(b"/", 1))
    found.users.append(PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"]))
    found.permissions.append(PutPermission(b"/", b"guest", ".*", ".*", ".*"))
    found.exchanges.append(PutExchange(b"/", b"both", b"fanout", False, False, b""))
    for number, name in enumerate(queues, 1):
        found.queues.append(PutQueue(b"/", number, name, True, False, b""))
        found.bindings.append(PutBinding(b"/", b"both", name, True, b"", b""))
    return found


def extent(queue_id: int, end_seq: int, **more: int) -> QueueExtent:
    return QueueExtent(vhost_id=1, queue_id=queue_id, end_seq=end_seq, **more)


def row(body: bytes, seq: int = 0, **more: Any) -> MessageRow:
    return replace(MessageRow(b"both", b"key", b"\x00\x00", body, NOW_MS, seq=seq), **more)


def write(writer: StoreWriter, part: Part, rows: list[MessageRow]) -> PartManifest:
    with PartWriter(writer.work_directory, part) as writing:
        for one in rows:
            writing.add(one)
        return writing.finish()


def one_queue(directory: Path, rows: list[MessageRow], **more: int) -> WrittenStore:
    """Write a whole store with one queue."""
    writer = StoreWriter.create(directory, definitions(b"q"), [extent(1, 1 << 40, **more)])
    return writer.finish([write(writer, writer.plan.parts[0], rows)])


Found = tuple[int, bytes, bytes, bytes, int, bool, int]


def found_in(directory: Path, queue_id: int = 1, segment_entries: int = 16384) -> list[Found]:
    """(seq, address, properties, body, expiry, redelivered, enqueued) of a queue's messages."""
    found: list[Found] = []
    with files_of(VhostDirectory(1, directory / "msg_stores/vhosts/1", None)) as files:
        snapshot = VhostSnapshot(files, segment_entries)
        assert snapshot.replay.is_clean
        queue = snapshot.queue(queue_id)
        for position in snapshot.positions(queue) if queue is not None else []:
            message = snapshot.message(position)
            assert message is not None and position.persistent
            assert (
                message.timestamp_ms == snapshot.timestamp_ms(queue, position) if queue else False
            )
            found.append(
                (
                    position.seq,
                    message.address,
                    message.properties,
                    message.body,
                    position.expiry_ms,
                    position.redelivered,
                    message.timestamp_ms,
                )
            )
    return found


def must_check_clean(directory: Path, messages: int, segment_entries: int = 16384) -> None:
    if segment_entries == 16384:
        # `warren store check` runs this function.
        result = check_directory(directory)
    else:
        result = CheckResult()
        with opened(directory) as data, files_of(data.vhosts[0]) as files:
            check_store(files, segment_entries, data.definitions, data.vhosts[0], result)
    assert result.problems == [] and result.notes == []
    assert result.messages == messages


# -- what a node makes of it -----------------------------------------------------------------------


def test_a_node_delivers_every_message_as_it_was(tmp_path: Path) -> None:
    """Three segments with holes, sizes around the embed threshold, and contents of two queues."""
    sizes = [0, 1, 4000, *range(4060, 4120), 100_000, 1 << 20]
    block = Properties(
        content_type=b"text/plain", headers=b"\x01nI\x00\x00\x00\x07", delivery_mode=2
    ).encode()
    rows = [row(b"%d" % seq, seq, properties=block) for seq in range(5, 40_000, 1) if seq % 100]
    rows += [row(b"b" * size, redelivered=size % 2 == 0, expires_ms=FAR_MS) for size in sizes]
    shared = [b"%d" % number + b"f" * 9000 for number in range(50)]
    (tmp_path / "node").mkdir()
    writer = StoreWriter.create(
        tmp_path / "node/data",
        definitions(b"one", b"two"),
        [extent(1, 50_000, first_seq=5, next_seq=60_000), extent(2, 51)],
        {1: 50},
        16384,
    )
    parts = {(part.queue_id, part.first_seq): part for part in writer.plan.parts}
    assert sorted(parts) == [(0, 0), (1, 5), (1, 16384), (1, 32768), (1, 49152), (2, 1)]
    contents = _share(writer, parts[0, 0], shared, (1, 49_200), (2, 1))
    manifests = [contents[0]]
    for first in (5, 16384, 32768):
        inside = [one for one in rows if first <= one.seq < (first // 16384 + 1) * 16384]
        if first == 32768:
            inside += rows[-len(sizes) :]
        manifests.append(write(writer, parts[1, first], inside))
    for queue, first in ((1, 49_152), (2, 1)):
        with PartWriter(writer.work_directory, parts[queue, first]) as writing:
            for number, content in enumerate(contents[1]):
                writing.add_shared(content, Sharer(queue, (49_200 if queue == 1 else 1) + number))
            manifests.append(writing.finish())
    # The manifest of a part that another process wrote comes back through JSON.
    raw = msgspec.json.encode(manifests)
    result = writer.finish(msgspec.json.decode(raw, type=list[PartManifest]))
    assert result.messages == len(rows) + 2 * len(shared)
    must_check_clean(tmp_path / "node/data", result.messages)

    node = BrokerProcess(tmp_path / "node")
    node.start()
    try:
        channel = connect(node).channel()
        for one in rows:
            got = channel.get(b"one", no_ack=True)
            assert isinstance(got.method, BasicGetOk)
            assert (got.body, got.raw, got.method.redelivered) == (
                one.body,
                one.properties,
                one.redelivered,
            )
            assert (got.method.exchange, got.method.routing_key) == (b"both", b"key")
        assert channel.drain(b"one") == shared
        assert channel.drain(b"two") == shared
        channel.publish(b"", b"routed", exchange=b"both")
        assert channel.drain(b"one") == [b"routed"] == channel.drain(b"two")
        assert node.stop() == 0
    finally:
        node.kill()
    must_check_clean(tmp_path / "node/data", 0)


def _share(
    writer: StoreWriter, part: Part, bodies: list[bytes], *places: tuple[int, int]
) -> tuple[PartManifest, list[SharedContent]]:
    with PartWriter(writer.work_directory, part) as writing:
        contents = [
            writing.share(row(body), [Sharer(queue, first + number) for queue, first in places])
            for number, body in enumerate(bodies)
        ]
        return writing.finish(), contents


def test_messages_that_have_expired_meanwhile_are_not_delivered(tmp_path: Path) -> None:
    one_queue(
        tmp_path / "data",
        [row(b"old", expires_ms=NOW_MS), row(b"new", expires_ms=FAR_MS), row(b"ever")],
    )
    node = BrokerProcess(tmp_path)
    node.start()
    try:
        assert connect(node).channel().drain(b"q") == [b"new", b"ever"]
    finally:
        node.kill()


def test_messages_that_were_out_before_are_redelivered(tmp_path: Path) -> None:
    one_queue(tmp_path / "data", [row(b"%d" % seq) for seq in range(1, 6)], delivered_upto=2)
    node = BrokerProcess(tmp_path)
    node.start()
    try:
        channel = connect(node).channel()
        for seq in range(1, 6):
            got = channel.get(b"q", no_ack=True)
            assert isinstance(got.method, BasicGetOk) and got.method.redelivered == (seq <= 2)
    finally:
        node.kill()


# -- any messages ----------------------------------------------------------------------------------

BODIES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda size, byte: bytes((byte,)) * size, st.integers(4070, 4110), st.integers(0, 255)
    ),
    st.builds(lambda size: b"\x57\x52\x01\x01" * size, st.sampled_from([5_000, 262_144])),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 2, 9, 40]),
        BODIES,
        st.binary(max_size=20),
        st.sampled_from([0, FAR_MS]),
        st.booleans(),
    ),
    max_size=40,
)


@given(
    st.lists(ROWS, min_size=1, max_size=3),
    st.lists(st.tuples(BODIES, st.integers(1, 3)), max_size=5),
    st.sampled_from([0, 8, 24]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_messages_come_back(
    queues: list[list[tuple[int, bytes, bytes, int, bool]]],
    shared: list[tuple[bytes, int]],
    part_messages: int,
) -> None:
    """Queues with holes, short segments, small content files, and shared last messages."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "data"
        rows: dict[int, list[MessageRow]] = {}
        sharers: list[list[Sharer]] = [[] for _ in shared]
        ends: dict[int, int] = {}
        for queue_id, messages in enumerate(queues, 1):
            seq = 0
            rows[queue_id] = []
            for step, body, text, expires_ms, redelivered in messages:
                seq += step
                block = Properties(message_id=text, delivery_mode=2).encode()
                made = row(
                    body, seq, properties=block, expires_ms=expires_ms, redelivered=redelivered
                )
                rows[queue_id].append(made)
            for number, (_, count) in enumerate(shared):
                if queue_id <= count:
                    seq += 1
                    sharers[number].append(Sharer(queue_id, seq, 0, number % 2 == 0))
            ends[queue_id] = seq + 1
        names = [b"%d" % queue_id for queue_id in ends]
        writer = StoreWriter.create(
            directory,
            definitions(*names),
            [extent(queue_id, end) for queue_id, end in ends.items()],
            {1: len(shared)},
            part_messages,
            WriterSettings(segment_entries=8, content_file_size_limit=20_000),
        )
        manifests, places = _write_shared(writer, shared, sharers)
        expected: dict[int, list[Found]] = {queue_id: [] for queue_id in ends}
        for part in writer.plan.parts:
            if part.queue_id:
                manifests.append(_write_queue_part(writer, part, rows[part.queue_id], places))
        for queue_id, made_rows in rows.items():
            expected[queue_id] += [_as_found(one) for one in made_rows]
        for (body, _), group in zip(shared, sharers, strict=True):
            for sharer in group:
                one = row(body, sharer.seq, redelivered=sharer.redelivered)
                expected[sharer.queue_id].append(_as_found(one))
        writer.finish(reversed(manifests))
        for queue_id in ends:
            assert found_in(directory, queue_id, 8) == expected[queue_id]
        assert not incomplete_path(directory).exists()
        must_check_clean(directory, sum(len(one) for one in expected.values()), 8)


def _as_found(one: MessageRow) -> Found:
    address = address_of(one.exchange, one.routing_key)
    return (
        one.seq,
        address,
        one.properties,
        one.body,
        one.expires_ms,
        one.redelivered,
        one.enqueued_ms,
    )


def _write_shared(
    writer: StoreWriter, shared: list[tuple[bytes, int]], sharers: list[list[Sharer]]
) -> tuple[list[PartManifest], dict[Sharer, SharedContent]]:
    manifests: list[PartManifest] = []
    places: dict[Sharer, SharedContent] = {}
    waiting = list(zip(shared, sharers, strict=True))
    for part in writer.plan.parts:
        if part.queue_id:
            continue
        with PartWriter(writer.work_directory, part) as writing:
            for _ in range(part.end_content_id - part.first_content_id):
                (body, _), group = waiting.pop(0)
                if group:
                    content = writing.share(row(body), group)
                    places.update(dict.fromkeys(group, content))
            manifests.append(writing.finish())
    assert not waiting
    return manifests, places


def _write_queue_part(
    writer: StoreWriter, part: Part, rows: list[MessageRow], places: dict[Sharer, SharedContent]
) -> PartManifest:
    with PartWriter(writer.work_directory, part) as writing:
        for one in rows:
            if part.first_seq <= one.seq < part.end_seq:
                assert writing.add(one) == one.seq
        for sharer, content in places.items():
            if sharer.queue_id == part.queue_id and part.first_seq <= sharer.seq < part.end_seq:
                writing.add_shared(content, sharer)
        return writing.finish()


def test_seq_ids_are_assigned_where_none_are_given(tmp_path: Path) -> None:
    one_queue(tmp_path / "data", [row(b"a"), row(b"b"), row(b"c", 10), row(b"d")])
    assert [(one[0], one[3]) for one in found_in(tmp_path / "data")] == [
        (1, b"a"),
        (2, b"b"),
        (10, b"c"),
        (11, b"d"),
    ]
    must_check_clean(tmp_path / "data", 4)


def test_transient_messages_stay_only_when_they_are_to(tmp_path: Path) -> None:
    rows = [row(b"kept"), row(b"transient", persistent=False), row(b"t" * 9000, persistent=False)]
    assert one_queue(tmp_path / "without", rows).skipped_transient == 2
    assert [one[3] for one in found_in(tmp_path / "without")] == [b"kept"]
    writer = StoreWriter.create(
        tmp_path / "with",
        definitions(b"q"),
        [extent(1, 9)],
        settings=WriterSettings(keep_transient=True),
    )
    assert writer.finish([write(writer, writer.plan.parts[0], rows)]).skipped_transient == 0
    assert found_in(tmp_path / "with") == [
        _as_found(replace(one, seq=n)) for n, one in enumerate(rows, 1)
    ]
    must_check_clean(tmp_path / "with", 3)


def test_queues_without_messages(tmp_path: Path) -> None:
    writer = StoreWriter.create(
        tmp_path / "data",
        definitions(b"a", b"b", b"c"),
        [extent(1, 100), extent(2, 1, next_seq=77)],
    )
    writer.finish([write(writer, part, []) for part in writer.plan.parts])
    must_check_clean(tmp_path / "data", 0)
    with files_of(VhostDirectory(1, tmp_path / "data/msg_stores/vhosts/1", None)) as files:
        queue = VhostSnapshot(files).queue(2)
        assert queue is not None and queue.ledger.next_seq == 77


# -- parts -----------------------------------------------------------------------------------------


def _in_a_process(work: Path, part: Part) -> bytes:
    with PartWriter(work, part) as writing:
        for seq in range(part.first_seq, part.end_seq):
            writing.add(row(b"%d" % seq * (2000 if seq % 5 == 0 else 1), seq))
        return msgspec.json.encode(writing.finish())


def test_parts_are_written_in_several_processes(tmp_path: Path) -> None:
    writer = StoreWriter.create(
        tmp_path / "data", definitions(b"q"), [extent(1, 40_000)], part_messages=16384
    )
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        raw = pool.starmap(
            _in_a_process, [(writer.work_directory, part) for part in writer.plan.parts]
        )
    writer.finish(msgspec.json.decode(one, type=PartManifest) for one in raw)
    must_check_clean(tmp_path / "data", 39_999)
    assert [one[0] for one in found_in(tmp_path / "data")] == list(range(1, 40_000))


def test_parts_have_whole_segments_and_ids_of_their_own() -> None:
    parts = plan_parts(
        [extent(1, 100, first_seq=3), extent(2, 20)], {1: 7}, WriterSettings(segment_entries=8), 20
    )
    assert [(part.queue_id, part.first_seq, part.end_seq) for part in parts] == [
        (0, 0, 0),
        *((1, max(first, 3), min(first + 16, 100)) for first in range(0, 100, 16)),
        (2, 1, 16),
        (2, 16, 20),
    ]
    ends = [part.end_content_id for part in parts]
    assert [part.first_content_id for part in parts] == [1, *ends[:-1]]
    assert [part.number for part in parts] == list(range(len(parts)))


@pytest.mark.parametrize(
    "extents",
    [
        [extent(1, 5), extent(1, 9)],
        [extent(1, 0)],
        [extent(1, 5, first_seq=0)],
        [extent(1, 1 << 63)],
    ],
)
def test_plans_that_make_no_sense_are_refused(tmp_path: Path, extents: list[QueueExtent]) -> None:
    with pytest.raises(ToolError):
        StoreWriter.create(tmp_path / "data", definitions(b"q"), extents)
    assert list(tmp_path.iterdir()) == []


def test_definitions_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    broken = definitions(b"q")
    broken.queues.append(PutQueue(b"/", 1, b"other", True, False, b""))
    for wrong in (Definitions(), broken, definitions(b"q", b"q")):
        with pytest.raises(ToolError):
            StoreWriter.create(tmp_path / "data", wrong, [])
    with pytest.raises(ToolError, match="not defined"):
        StoreWriter.create(tmp_path / "data", definitions(b"q"), [extent(2, 5)])
    assert list(tmp_path.iterdir()) == []


def test_messages_out_of_order_or_place_are_refused(tmp_path: Path) -> None:
    writer = StoreWriter.create(
        tmp_path / "data", definitions(b"q"), [extent(1, 20, first_seq=10)], {1: 1}
    )
    shared_part, part = writer.plan.parts
    writing = PartWriter(writer.work_directory, part)
    writing.add(row(b"a", 12))
    for seq in (9, 12, 20):
        with pytest.raises(ValueError, match="may follow here"):
            writing.add(row(b"b", seq))
    with pytest.raises(ValueError, match="range"):
        writing.add(row(b"b", 13, routing_key=b"k" * 256))
    with pytest.raises(ValueError, match="need a part for them"):
        writing.share(row(b"b"), [Sharer(1, 14)])
    sharing = PartWriter(writer.work_directory, shared_part)
    sharing.share(row(b"b"), [Sharer(1, 14)])
    with pytest.raises(ValueError, match="fewer contents"):
        sharing.share(row(b"b"), [Sharer(1, 15)])
    with pytest.raises(ValueError, match="cannot share"):
        sharing.share(row(b"b"), [])


# -- unfinished ------------------------------------------------------------------------------------


def test_nothing_is_there_before_the_end(tmp_path: Path) -> None:
    """No target directory exists before the end, and finished parts are not written again."""
    target = tmp_path / "data"
    writer = StoreWriter.create(target, definitions(b"a", b"b"), [extent(1, 9), extent(2, 9)])
    first, second = writer.plan.parts
    manifests = [write(writer, first, [row(b"first")])]
    killed = PartWriter(writer.work_directory, second)
    killed.add(row(b"lost"))
    assert not target.exists()
    with pytest.raises(ToolError, match="is being made, or was interrupted"):
        StoreWriter.create(target, definitions(b"a"), [])

    again = StoreWriter.resume(target)
    assert again.plan == writer.plan
    with pytest.raises(ToolError, match="1 of 2 parts are missing"):
        again.finish(manifests)
    manifests.append(write(again, second, [row(b"second")]))
    again.finish(manifests)
    assert [one[3] for one in found_in(target, 1) + found_in(target, 2)] == [b"first", b"second"]
    must_check_clean(target, 2)
    with pytest.raises(ToolError, match="no unfinished store"):
        StoreWriter.resume(target)


def test_a_second_attempt_at_a_part_does_not_meet_the_first(tmp_path: Path) -> None:
    writer = StoreWriter.create(tmp_path / "data", definitions(b"q"), [extent(1, 99)])
    [part] = writer.plan.parts
    slow, fast = PartWriter(writer.work_directory, part), PartWriter(writer.work_directory, part)
    for writing in (slow, fast):
        for seq in range(1, 50):
            writing.add(row(b"m" * 100 * seq, seq))
    slow.add(row(b"one more"))
    manifests = [slow.finish(), fast.finish()]
    with pytest.raises(ToolError, match="two manifests"):
        writer.finish(manifests)
    assert writer.finish(manifests[1:]).messages == 49
    must_check_clean(tmp_path / "data", 49)


@pytest.mark.parametrize("kept_calls", [0, 2, 4, 7, 12, 17, 18, 19, 20])
def test_finishing_again_after_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_calls: int
) -> None:
    """Finishing resumes after an interruption at any move, sync or removal."""
    target = tmp_path / "data"
    writer = StoreWriter.create(target, definitions(b"a", b"b"), [extent(1, 9), extent(2, 9)])
    manifests = [
        write(writer, part, [row(b"small"), row(b"l" * 9000)]) for part in writer.plan.parts
    ]
    calls = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls > kept_calls:
                raise OSError("interrupted")
            return real(*arguments, **more)

        return call

    with monkeypatch.context() as patched:
        for owner, name in (
            (Path, "rename"),
            (os, "rename"),
            (os, "fsync"),
            (os, "fdatasync"),
            (os, "rmdir"),
        ):
            patched.setattr(owner, name, counted(getattr(owner, name)))
        with contextlib.suppress(ToolError):
            writer.finish(manifests)
    if incomplete_path(target).exists():
        StoreWriter.resume(target).finish(manifests)
    assert not incomplete_path(target).exists()
    must_check_clean(target, 4)
    assert [one[3] for one in found_in(target, 2)] == [b"small", b"l" * 9000]


def test_shared_contents_and_the_messages_that_have_them_must_agree(tmp_path: Path) -> None:
    writer = StoreWriter.create(tmp_path / "data", definitions(b"q"), [extent(1, 9)], {1: 2})
    sharing, part = writer.plan.parts
    manifest, contents = _share(writer, sharing, [b"a" * 5000, b"b" * 5000], (1, 1))
    with PartWriter(writer.work_directory, part) as writing:
        writing.add_shared(contents[0], Sharer(1, 1))
        with pytest.raises(ValueError, match="in the part of 1"):
            writing.add_shared(contents[1], Sharer(2, 2))
        writing.add_shared(contents[0], Sharer(1, 2))
        twice = writing.finish()
    for wrong in (twice, write(writer, part, [])):
        with pytest.raises(ToolError, match="shared contents have 2 references"):
            writer.finish([manifest, wrong])


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").touch()
    with pytest.raises(ToolError, match="not empty"):
        StoreWriter.create(tmp_path / "data", definitions(b"q"), [])
    (tmp_path / "data/file").unlink()
    StoreWriter.create(tmp_path / "data", definitions(b"q"), []).finish([])
    must_check_clean(tmp_path / "data", 0)


def test_giving_up_leaves_nothing(tmp_path: Path) -> None:
    writer = StoreWriter.create(tmp_path / "data", definitions(b"q"), [extent(1, 9)])
    with (
        pytest.raises(RuntimeError),
        PartWriter(writer.work_directory, writer.plan.parts[0]) as writing,
    ):
        writing.add(row(b"a"))
        raise RuntimeError
    assert list((writer.work_directory / "parts").iterdir()) == []
    writer.discard()
    assert list(tmp_path.iterdir()) == []
