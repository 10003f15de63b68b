"""A node enters its cluster: first and later starts, and directories and names that do not fit."""

import itertools
import shutil
import socket
from pathlib import Path

import pytest

from tests.cluster.groups.copies import new_group
from tests.support.etcd import EtcdServer
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    PutBinding,
    PutExchange,
    PutPermission,
    PutQueue,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.groups.group_change import with_group
from warrenmq.cluster.membership.identity import read_identity
from warrenmq.cluster.membership.joining import Membership, NotAdmitted
from warrenmq.cluster.membership.starting import ClusterStart
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawDelete, end_of
from warrenmq.cluster.records import RunningNode

FIRST: list[Change] = [
    PutVhost(b"/", 1),
    PutUser(b"guest", b"hash", "rabbit_password_hashing_sha256", []),
    PutPermission(b"/", b"guest", ".*", ".*", ".*"),
]


class Waited(Exception):
    """The start waits; the text says for what."""


class Starts:
    """Starts of nodes in one cluster of a real etcd."""

    def __init__(self, etcd: EtcdServer, cluster: str) -> None:
        self.metadata = EtcdMetadata(EtcdGateway([etcd.url]), cluster)
        self.cluster = cluster
        self._numbers = itertools.count(1)

    def membership(self, node: str) -> Membership:
        return Membership(
            self.cluster,
            node,
            self.metadata,
            lambda size: next(self._numbers).to_bytes(size, "big"),
            lambda: 1_700_000_000_000,
        )

    def start(
        self, node: str, directory: Path, rows: Definitions | None = None
    ) -> tuple[ClusterStart, Definitions, list[Change]]:
        """Start `node` in `directory`. Raises Waited as soon as it would wait."""
        directory.mkdir(exist_ok=True)
        start = ClusterStart(node, "", self.membership(node), self.metadata, self._wait)
        self._start = start
        opened, changes = start.open(directory, rows or Definitions(), FIRST)
        return start, opened, changes

    def _wait(self, _pause_s: float) -> None:
        raise Waited(self._start.reason)


@pytest.fixture
def starts(etcd: EtcdServer, request: pytest.FixtureRequest) -> Starts:
    """Starts in a cluster of the test's own."""
    return Starts(etcd, request.node.name)


def test_the_first_node_makes_the_cluster_and_others_join(starts: Starts, tmp_path: Path) -> None:
    one, opened, changes = starts.start("a@h", tmp_path / "a")
    assert [vhost.name for vhost in opened.vhosts] == [b"/"] and len(opened.users) == 1
    assert [type(change) for change in changes] == [PutVhost]
    two, opened, _changes = starts.start("b@h", tmp_path / "b")
    assert one.meta is not None and two.meta is not None
    assert one.meta.id == two.meta.id and one.meta.secret == two.meta.secret
    assert set(starts.membership("b@h").members()) == {"a@h", "b@h"}


def test_a_lone_node_brings_its_definitions_and_keeps_its_numbers(
    starts: Starts, tmp_path: Path
) -> None:
    rows = Definitions()
    rows.vhosts = [PutVhost(b"/", 7)]
    rows.users = [PutUser(b"u", b"hash", "rabbit_password_hashing_sha256", ["administrator"])]
    rows.exchanges = [PutExchange(b"/", b"x", b"topic", False, False, b"")]
    rows.queues = [PutQueue(b"/", 41, b"q", True, False, b"")]
    rows.bindings = [PutBinding(b"/", b"x", b"q", True, b"#", b"")]
    rows.next_queue_id, rows.next_vhost_id = 42, 8
    start, opened, changes = starts.start("a@h", tmp_path / "a", rows)
    assert [(each.id, each.name) for each in opened.queues] == [(41, b"q")]
    assert [each.id for each in opened.vhosts] == [7]
    # The row learns the birth of the queue, so that a later life of it is told apart.
    [row] = changes
    assert isinstance(row, PutQueue) and row.birth == start.shared.queues[0].birth > 0
    other, _opened, _changes = starts.start("b@h", tmp_path / "b")
    assert [(each.node, each.name) for each in other.shared.queues] == [(b"a@h", b"q")]
    assert [each.name for each in other.shared.users] == [b"u"]
    assert len(other.shared.bindings) == 1


def test_queues_of_a_lone_node_do_not_enter_a_cluster_that_is_there(
    starts: Starts, tmp_path: Path
) -> None:
    starts.start("a@h", tmp_path / "a")
    rows = Definitions()
    rows.vhosts = [PutVhost(b"/", 1)]
    rows.queues = [PutQueue(b"/", 1, b"q", True, False, b"")]
    with pytest.raises(NotAdmitted, match="queues of a node that ran alone"):
        starts.start("b@h", tmp_path / "b", rows)


def test_a_queue_of_another_life_loses_its_messages(starts: Starts, tmp_path: Path) -> None:
    starts.start("a@h", tmp_path / "a")
    queue = PutQueue(b"/", 0, b"q", True, False, b"", node=b"a@h")
    first = starts.metadata.commit([], [queue])
    assert first
    rows = Definitions()
    rows.vhosts = [PutVhost(b"/", 1)]
    rows.queues = [
        PutQueue(b"/", 5, b"q", True, False, b"", birth=first),
        PutQueue(b"/", 6, b"gone", True, False, b"", birth=first),
    ]
    rows.next_queue_id = 9
    _start, opened, _changes = starts.start("a@h", tmp_path / "a", rows)
    assert [each.id for each in opened.queues] == [5]
    starts.metadata.gateway.transact([], [])
    rows.queues[0].birth = first - 1
    _start, opened, changes = starts.start("a@h", tmp_path / "a", rows)
    assert [each.id for each in opened.queues] == [9]
    assert {type(change).__name__ for change in changes} == {"DeleteQueue", "PutQueue"}


def test_transient_queues_of_the_last_run_are_forgotten(starts: Starts, tmp_path: Path) -> None:
    starts.start("a@h", tmp_path / "a")
    for node in (b"a@h", b"b@h"):
        starts.metadata.commit([], [PutQueue(b"/", 0, b"t-" + node, False, False, b"", node=node)])
    start, opened, _changes = starts.start("a@h", tmp_path / "a")
    assert opened.queues == []
    assert [each.name for each in start.shared.queues] == [b"t-b@h"]
    assert [each.name for each in starts.metadata.load().queues] == [b"t-b@h"]


def test_a_transient_queue_with_a_copy_elsewhere_outlives_the_run(
    starts: Starts, tmp_path: Path
) -> None:
    """Another node takes over; a queue whose only complete copy was here is gone."""
    starts.start("a@h", tmp_path / "a")
    for name, group in ((b"two", new_group(b"a@h", b"b@h")), (b"one", new_group(b"a@h"))):
        put = PutQueue(b"/", 0, name, False, False, b"")
        starts.metadata.commit([], [with_group(put, group)])
    start, opened, _changes = starts.start("a@h", tmp_path / "a")
    assert opened.queues == [] and [each.name for each in start.shared.queues] == [b"two"]


def test_transient_exchanges_last_as_long_as_a_node_runs(starts: Starts, tmp_path: Path) -> None:
    start, _opened, _changes = starts.start("a@h", tmp_path / "a")
    assert start.identity is not None
    exchange = PutExchange(b"/", b"t", b"fanout", False, False, b"", False)
    queue = PutQueue(b"/", 0, b"q", True, False, b"", node=b"a@h")
    birth = starts.metadata.commit([], [exchange, queue])
    assert birth
    binding = PutBinding(b"/", b"t", b"q", True, b"", b"", birth, birth)
    starts.metadata.commit([], [binding])
    record = RunningNode(start.identity.replica_id, 1, "192.0.2.1", 1, "0")
    lease, _birth = starts.membership("a@h").register(record)
    other, _opened, _changes = starts.start("b@h", tmp_path / "b")
    assert len(other.shared.exchanges) == len(other.shared.bindings) == 1
    starts.metadata.gateway.revoke(lease)
    other, _opened, _changes = starts.start("b@h", tmp_path / "b")
    assert other.shared.exchanges == [] and other.shared.bindings == []
    assert [each.name for each in other.shared.queues] == [b"q"]


# -- what does not fit -----------------------------------------------------------------------------


def test_an_emptied_directory_is_not_the_member(starts: Starts, tmp_path: Path) -> None:
    starts.start("a@h", tmp_path / "a")
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(NotAdmitted, match="a member 'a@h' with another data directory"):
        starts.start("a@h", tmp_path / "a")
    # The refusal leaves nothing that would let a later start in.
    with pytest.raises(NotAdmitted, match="a member 'a@h' with another data directory"):
        starts.start("a@h", tmp_path / "a")


def test_a_copied_directory_is_not_another_member(starts: Starts, tmp_path: Path) -> None:
    starts.start("a@h", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(NotAdmitted, match="belongs to node 'a@h', not to 'b@h'"):
        starts.start("b@h", tmp_path / "b")


def test_a_wiped_etcd_is_refused(starts: Starts, tmp_path: Path) -> None:
    starts.start("a@h", tmp_path / "a")
    starts.metadata.gateway.transact([], [_delete_all(f"/warren/{starts.cluster}/".encode())])
    with pytest.raises(NotAdmitted, match="etcd has no cluster"):
        starts.start("a@h", tmp_path / "a")
    # A node without data makes the cluster anew: that is another cluster.
    starts.start("b@h", tmp_path / "b")
    with pytest.raises(NotAdmitted, match="etcd has another cluster"):
        starts.start("a@h", tmp_path / "a")


def test_a_forgotten_node_is_told_to_reset(starts: Starts, tmp_path: Path) -> None:
    starts.start("a@h", tmp_path / "a")
    starts.metadata.gateway.transact([], [_delete_all(starts.metadata.key("members", b"a@h"))])
    with pytest.raises(NotAdmitted, match="the cluster disagrees"):
        starts.start("a@h", tmp_path / "a")


def test_a_second_node_of_the_name_waits_while_the_first_answers(
    starts: Starts, tmp_path: Path
) -> None:
    start, _opened, _changes = starts.start("a@h", tmp_path / "a")
    assert start.identity is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        record = RunningNode(start.identity.replica_id, 1, "127.0.0.1", port, "0")
        starts.membership("a@h").register(record)
        with pytest.raises(Waited, match=f"answers at 127.0.0.1:{port}"):
            starts.start("a@h", tmp_path / "a")
    # Nobody listens there any more: the earlier run has ended, whatever its lease says.
    starts.start("a@h", tmp_path / "a")
    assert starts.membership("a@h").running() == {}


def test_each_start_has_a_higher_incarnation(starts: Starts, tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        starts.start("a@h", tmp_path / "a")
        identity = read_identity(tmp_path / "a")
        assert identity is not None and identity.incarnation == expected


def test_a_start_waits_for_etcd(own_etcd: EtcdServer, tmp_path: Path) -> None:
    starts = Starts(own_etcd, "waits")
    starts.start("a@h", tmp_path / "a")
    own_etcd.kill()
    with pytest.raises(Waited, match="waiting for etcd"):
        starts.start("a@h", tmp_path / "a")
    own_etcd.start()
    own_etcd.await_ready()
    starts.start("a@h", tmp_path / "a")


def test_a_wait_is_logged_when_it_lasts(
    own_etcd: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nodes that make a cluster together meet there, and one pause later all is well."""
    starts = Starts(own_etcd, "lasts")
    own_etcd.kill()
    lines: list[int] = []

    def pause(_seconds: float) -> None:
        lines.append(caplog.text.count("waiting for etcd: "))
        if len(lines) == 3:
            raise Waited

    start = ClusterStart("a@h", "", starts.membership("a@h"), starts.metadata, pause)
    (tmp_path / "a").mkdir()
    with pytest.raises(Waited):
        start.open(tmp_path / "a", Definitions(), FIRST)
    assert lines == [0, 1, 1]


def _delete_all(prefix: bytes) -> RawDelete:
    return RawDelete(prefix, end_of(prefix))


def test_a_directory_that_was_restored_has_other_copies(starts: Starts, tmp_path: Path) -> None:
    """Nothing that a group says of its later content may count for the older one (I6)."""
    data, kept = tmp_path / "a", tmp_path / "kept"
    runs = []
    for number in range(3):
        start, _opened, _changes = starts.start("a@h", data)
        identity = start.identity
        assert identity is not None
        record = RunningNode(
            identity.replica_id, identity.incarnation, "h", 1, "", restored=identity.restored
        )
        _lease, birth = starts.membership("a@h").register(record)
        starts.membership("a@h").end_run(birth)
        runs.append((identity.incarnation, record.copies_id))
        if number == 0:
            shutil.copytree(data, kept)
    assert [number for number, _id in runs] == [1, 2, 3]
    assert len({copies for _number, copies in runs}) == 1
    shutil.rmtree(data)
    kept.rename(data)
    for _ in range(2):
        start, _opened, _changes = starts.start("a@h", data)
        assert start.identity is not None
        assert start.identity.incarnation > 3
        assert start.identity.restored == 3
        assert start.identity.replica_id == runs[0][1]
