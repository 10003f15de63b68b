"""The definitions of a cluster: conditions, births, bindings in force, watches, records, leases."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.awaiting import eventually
from warrenmq.broker.definitions.metadata import (
    NO_ID,
    Change,
    DeleteBinding,
    DeleteExchange,
    DeletePermission,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
    MetadataDamaged,
    PutBinding,
    PutExchange,
    PutPermission,
    PutQueue,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.metadata.conditions import (
    Absent,
    Alive,
    Condition,
    Exists,
    LastWritten,
    NodeIs,
    Unchanged,
)
from warrenmq.cluster.metadata.errors import LeaseGone
from warrenmq.cluster.metadata.etcd_metadata import OPERATIONS_MAX, EtcdMetadata, Watched
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import KeyValue, RawDelete, RawPut
from warrenmq.cluster.metadata.values import NewerFormat
from warrenmq.cluster.metadata.watching import StopSignal

QUEUE = PutQueue(b"/", NO_ID, b"q", True, False, b"", node=b"n@h")
EXCHANGE = PutExchange(b"/", b"x", b"fanout", False, False, b"", durable=False)


@pytest.fixture
def metadata(gateway: EtcdGateway, cluster_name: str) -> EtcdMetadata:
    return EtcdMetadata(gateway, cluster_name)


def commit(metadata: EtcdMetadata, *changes: Change | RawPut | RawDelete) -> int:
    revision = metadata.commit([], changes)
    assert revision is not None
    return revision


def binding(source_birth: int, destination_birth: int, key: bytes = b"k") -> PutBinding:
    return PutBinding(b"/", b"x", b"q", True, key, b"", source_birth, destination_birth)


def test_commit_depends_on_its_conditions(metadata: EtcdMetadata) -> None:
    """A condition that does not hold is a conflict, and nothing changes."""
    born = commit(metadata, QUEUE)
    record = metadata.key("gm", b"q")
    written = commit(metadata, RawPut(record, b""))
    node = commit(metadata, RawPut(metadata.key("nodes", b"n@h"), b""))
    true: list[Condition] = [
        Alive(QUEUE, born), Exists(QUEUE), LastWritten(QUEUE, born), Absent(EXCHANGE),
        Unchanged(record, written),
        Unchanged(metadata.key("gm", b"r"), 0), NodeIs(b"n@h", node), NodeIs(b"m@h", 0),
    ]  # fmt: skip
    false: list[Condition] = [
        LastWritten(QUEUE, born - 1), LastWritten(EXCHANGE, born), Alive(QUEUE, born - 1),
        Alive(EXCHANGE, born), Exists(EXCHANGE), Absent(QUEUE),
        Unchanged(record, written - 1), Unchanged(record, 0), NodeIs(b"n@h", 0), NodeIs(b"m@h", 1),
    ]  # fmt: skip
    for condition in false:
        assert metadata.commit([*true, condition], [EXCHANGE]) is None, condition
    assert metadata.load().exchanges == []
    made = metadata.commit(true, [EXCHANGE])
    assert made == metadata.load().exchanges[0].birth == node + 1


def test_commit_that_changes_nothing_has_no_revision(metadata: EtcdMetadata) -> None:
    """No watch tells of it, so nobody must wait for it."""
    assert metadata.commit([], [DeleteQueue(b"/", NO_ID, b"q")]) == 0
    assert metadata.commit([Absent(QUEUE)], []) == 0
    assert metadata.commit([Exists(QUEUE)], []) is None


def test_repeated_commit_is_a_conflict(metadata: EtcdMetadata) -> None:
    """So a commit with an unknown outcome may be repeated: it makes or deletes one life only."""
    born = metadata.commit([Absent(QUEUE)], [QUEUE])
    assert born is not None
    assert metadata.commit([Absent(QUEUE)], [QUEUE]) is None
    deletion = DeleteQueue(b"/", NO_ID, b"q")
    assert metadata.commit([Alive(QUEUE, born)], [deletion]) is not None
    assert metadata.commit([Alive(QUEUE, born)], [deletion]) is None


def test_one_of_many_writers_makes_a_queue(metadata: EtcdMetadata) -> None:
    results: list[int | None] = []
    threads = [
        threading.Thread(target=lambda: results.append(metadata.commit([Absent(QUEUE)], [QUEUE])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result for result in results if result] == [metadata.load().queues[0].birth]
    assert len(results) == 8


def test_commit_is_one_transaction(metadata: EtcdMetadata) -> None:
    """Too many changes are refused, and so is a second life of something in the same commit."""
    queues = [
        PutQueue(b"/", NO_ID, b"%d" % number, True, False, b"") for number in range(OPERATIONS_MAX)
    ]
    with pytest.raises(ValueError, match="120"):
        metadata.commit([], [*queues, QUEUE])
    for deletion in (DeleteQueue(b"/", NO_ID, b"q"), DeleteVhost(b"/")):
        with pytest.raises(ValueError, match="delete and write"):
            metadata.commit([], [deletion, QUEUE])
    assert metadata.load().queues == []
    born = commit(metadata, *queues)
    assert {queue.birth for queue in metadata.load().queues} == {born}


def test_births_name_lives(metadata: EtcdMetadata) -> None:
    """A rewritten definition keeps its birth; one that is deleted and made again has another."""
    vhost = PutVhost(b"/", NO_ID)
    born = commit(metadata, vhost, EXCHANGE, QUEUE)
    commit(metadata, vhost, EXCHANGE, QUEUE)
    found = metadata.load()
    assert [found.vhosts[0].birth, found.exchanges[0].birth, found.queues[0].birth] == [born] * 3
    assert not found.exchanges[0].durable and found.queues[0].node == b"n@h"
    commit(metadata, DeleteVhost(b"/"))
    again = commit(metadata, vhost, QUEUE)
    found, revision = metadata.load_at()
    assert [found.vhosts[0].birth, found.queues[0].birth] == [again, again]
    assert found.exchanges == [] and revision == again > born


def test_group_of_a_queue_changes_within_one_life(metadata: EtcdMetadata) -> None:
    """Each change of a group names the revision that it follows, and of two at once one is made."""
    born = commit(metadata, QUEUE)
    first = PutQueue(b"/", NO_ID, b"q", True, False, b"", node=b"n@h", group=b"one")
    other = PutQueue(b"/", NO_ID, b"q", True, False, b"", node=b"m@h", group=b"two")
    changed = metadata.commit([LastWritten(QUEUE, born)], [first])
    assert changed is not None
    assert metadata.commit([LastWritten(QUEUE, born)], [other]) is None
    [found] = metadata.load().queues
    assert (found.group, found.node) == (b"one", b"n@h")
    assert (found.birth, found.revision) == (born, changed)
    assert metadata.commit([LastWritten(QUEUE, changed)], [other])


def test_binding_is_in_force_while_both_ends_live(metadata: EtcdMetadata) -> None:
    source, destination = commit(metadata, EXCHANGE), commit(metadata, QUEUE)
    commit(metadata, binding(source, destination), binding(source, 0, b"no queue"))
    commit(metadata, binding(source - 1, destination, b"an earlier exchange"))
    assert [found.key for found in metadata.load().bindings] == [b"k"]
    commit(metadata, DeleteQueue(b"/", NO_ID, b"q"))
    assert [found.key for found in metadata.load().bindings] == [b"no queue"]
    again = commit(metadata, QUEUE)
    assert metadata.load().bindings == []
    commit(metadata, binding(source, again))
    assert [found.destination_birth for found in metadata.load().bindings] == [again]
    commit(metadata, DeleteExchange(b"/", b"x"))
    assert metadata.load().bindings == []


def test_load_is_of_one_revision(metadata: EtcdMetadata) -> None:
    """A vhost and a queue are written and deleted together; no load has one without the other."""
    is_over = threading.Event()
    vhost = PutVhost(b"/", NO_ID)

    def write() -> None:
        while not is_over.is_set():
            commit(metadata, vhost, QUEUE)
            commit(metadata, DeleteVhost(b"/"))

    writer = threading.Thread(target=write)
    writer.start()
    counts = set()
    for _ in range(30):
        found, revision = metadata.load_at()
        counts.add((len(found.vhosts), len(found.queues)))
        assert all(queue.birth <= revision for queue in found.queues)
    is_over.set()
    writer.join()
    assert counts == {(0, 0), (1, 1)}


def test_load_refuses_definitions_of_a_later_warren(metadata: EtcdMetadata) -> None:
    commit(metadata, RawPut(metadata.key("q", b"/", b"q"), b'{"format":3}'))
    with pytest.raises(NewerFormat):
        metadata.load()


def test_load_skips_what_cannot_be_read_but_forgets_no_vhost_and_no_queue(
    metadata: EtcdMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    whole = [PutVhost(b"/", NO_ID, "described"), QUEUE, EXCHANGE, PutUser(b"u", b"", "h", [])]
    commit(metadata, *whole)
    births = {type(each): each.birth for each in metadata.load().queues}
    keys = [
        metadata.key("vhosts", b"/"),
        metadata.key("q", b"/", b"q"),
        metadata.key("x", b"/", b"x"),
        metadata.key("users", b"u"),
    ]
    commit(metadata, *[RawPut(key, b"[]") for key in keys])
    found = metadata.load()
    assert [(each.name, each.description) for each in found.vhosts] == [(b"/", "")]
    [queue] = found.queues
    assert (queue.name, queue.birth, queue.durable) == (b"q", births[PutQueue], True)
    with pytest.raises(MetadataDamaged):
        group_of(queue)
    assert (found.exchanges, found.users) == ([], [])
    assert caplog.text.count("is damaged") == len(keys)


@contextmanager
def watched(
    metadata: EtcdMetadata, from_revision: int
) -> Iterator[list[tuple[int, list[Watched]]]]:
    """What a watch tells, until the end."""
    told: list[tuple[int, list[Watched]]] = []
    stop = StopSignal()
    thread = threading.Thread(
        target=metadata.watch,
        args=(from_revision, lambda revision, changes: told.append((revision, changes)), stop),
    )
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join()


def described(change: Watched) -> tuple[object, ...]:
    if isinstance(change, KeyValue | RawDelete):
        return type(change).__name__, change.key
    names = [name for name in dir(change) if not name.startswith("_")]
    return type(change).__name__, *[getattr(change, name) for name in names]


def test_watch_tells_changes_in_order_with_births(metadata: EtcdMetadata) -> None:
    """Each revision has its changes as committed, deletions too, which etcd knows by keys alone."""
    start = metadata.gateway.revision(b"/")
    node = metadata.key("nodes", b"n@h")
    sets: list[list[Change | RawPut | RawDelete]] = [
        [PutVhost(b"/", NO_ID), RawPut(node, b"up")],
        [EXCHANGE, QUEUE],
        [binding(3, 4)],
        [PutUser(b"u", b"h", "", []), PutPermission(b"/", b"u", "", "", "")],
        [DeleteBinding(b"/", b"x", b"q", True, b"k", b""), DeleteQueue(b"/", NO_ID, b"q")],
        [RawDelete(node), DeleteUser(b"u")],
        [DeleteVhost(b"/")],
    ]
    with watched(metadata, start + 1) as told:
        revisions = [commit(metadata, *changes) for changes in sets]
        eventually(lambda: len(told) >= len(sets), "the watch tells of all sets")
    assert [revision for revision, _ in told] == revisions
    exchange = PutExchange(b"/", b"x", b"fanout", False, False, b"", False, revisions[1])
    queue = PutQueue(
        b"/", NO_ID, b"q", True, False, b"", revisions[1], b"n@h", revision=revisions[1]
    )
    expected: list[list[Watched]] = [
        [PutVhost(b"/", NO_ID, birth=revisions[0]), KeyValue(node)],
        [exchange, queue],
        [binding(3, 4)],
        [PutUser(b"u", b"h", "", []), PutPermission(b"/", b"u", "", "", "")],
        [DeleteBinding(b"/", b"x", b"q", True, b"k", b""), DeleteQueue(b"/", NO_ID, b"q")],
        [RawDelete(node), DeleteUser(b"u"), DeletePermission(b"/", b"u")],
        # The exchange goes with its vhost.
        [DeleteVhost(b"/")],
    ]
    found = [[described(change) for change in changes] for _, changes in told]
    assert found == [[described(change) for change in changes] for changes in expected]
    record = told[0][1][1]
    assert isinstance(record, KeyValue)
    assert (record.value, record.create_revision) == (b"up", revisions[0])


def test_watch_skips_a_change_that_cannot_be_read(
    metadata: EtcdMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = RawPut(metadata.key("q", b"/", b"q"), b"[]")
    first = commit(metadata, QUEUE)
    with watched(metadata, first) as told:
        commit(metadata, damaged, EXCHANGE)
        commit(metadata, RawPut(metadata.key("q", b"/"), b""), RawDelete(damaged.key))
        commit(metadata, RawDelete(metadata.key("q", b"/")))
        last = commit(metadata, PutVhost(b"/", NO_ID))
        eventually(lambda: bool(told) and told[-1][0] == last, "the watch has told all")
    kinds = [[type(change) for change in changes] for _revision, changes in told]
    assert kinds == [[PutQueue], [PutExchange], [DeleteQueue], [], [PutVhost]]
    assert caplog.text.count("skipped a change of a definition") == 3


def test_watch_after_a_load_misses_nothing(metadata: EtcdMetadata) -> None:
    """What a load has and what the watch from the next revision on tells is all, and once."""
    names = [b"q%02d" % number for number in range(60)]
    is_begun = threading.Event()

    def write() -> None:
        for name in names:
            commit(metadata, PutQueue(b"/", NO_ID, name, True, False, b""))
            is_begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    is_begun.wait()
    definitions, revision = metadata.load_at()
    with watched(metadata, revision + 1) as told:
        writer.join()
        missing = len(names) - len(definitions.queues)
        eventually(lambda: len(told) >= missing, "the watch tells of all later queues")
    later = [change for _, changes in told for change in changes]
    loaded: list[Watched] = [*definitions.queues]
    assert [change.name for change in [*loaded, *later] if isinstance(change, PutQueue)] == names


def test_clusters_in_one_etcd_do_not_meet(metadata: EtcdMetadata, gateway: EtcdGateway) -> None:
    other = EtcdMetadata(gateway, "other/cluster")
    start = gateway.revision(b"/")
    with watched(other, start + 1) as told:
        commit(metadata, QUEUE)
        made = commit(other, EXCHANGE)
        eventually(lambda: bool(told), "the watch tells of its own cluster")
    assert [revision for revision, _ in told] == [made]
    assert [len(other.load().queues), len(metadata.load().exchanges)] == [0, 0]
    commit(other, DeleteExchange(b"/", b"x"))


def test_exclusive_queue_goes_with_the_lease_of_its_node(metadata: EtcdMetadata) -> None:
    """Other queues of the commit stay."""
    lease = metadata.gateway.grant(60)
    exclusive = PutQueue(b"/", NO_ID, b"e", False, False, b"", node=b"n@h", is_exclusive=True)
    born = metadata.commit([], [QUEUE, exclusive], lease)
    assert [queue.is_exclusive for queue in metadata.load().queues] == [True, False]
    start = metadata.gateway.revision(b"/")
    with watched(metadata, start + 1) as told:
        metadata.gateway.revoke(lease)
        eventually(lambda: bool(told), "the watch tells of the deletion")
    ((_, changes),) = told
    assert [described(change) for change in changes] == [described(DeleteQueue(b"/", NO_ID, b"e"))]
    assert [(queue.name, queue.birth) for queue in metadata.load().queues] == [(b"q", born)]
    with pytest.raises(LeaseGone):
        metadata.commit([], [exclusive], lease)


def test_records_are_read_by_kind(metadata: EtcdMetadata) -> None:
    lease = metadata.gateway.grant(60)
    first, second = metadata.key("nodes", b"a/b"), metadata.key("nodes", b"c")
    born = commit(metadata, RawPut(second, b"2", lease), RawPut(metadata.key("meta"), b"m"))
    commit(metadata, RawPut(first, b"1"))
    assert [(found.key, found.value) for found in metadata.records("nodes")] == [
        (first, b"1"),
        (second, b"2"),
    ]
    assert metadata.records("nodes", born) == [KeyValue(second, b"2", born, born, lease)]
    meta = metadata.get(metadata.key("meta"))
    assert meta is not None and meta.value == b"m"
    assert metadata.get(metadata.key("members", b"c")) is None


def test_user_with_more_permissions_than_one_transaction_deletes(metadata: EtcdMetadata) -> None:
    """Those that stay are void, also when the user is made again."""
    commit(metadata, PutUser(b"u", b"h", "", []))
    for start in (0, 100):
        commit(
            metadata,
            *(PutPermission(b"v%d" % number, b"u", "", "", "") for number in range(start, start + 100)),
        )  # fmt: skip
    commit(metadata, PutTopicPermission(b"v", b"u", b"x", "", ""))
    assert len(metadata.load().permissions) == 200
    commit(metadata, DeleteUser(b"u"))
    commit(metadata, PutUser(b"u", b"h", "", []))
    found = metadata.load()
    assert (found.permissions, found.topic_permissions) == ([], [])
