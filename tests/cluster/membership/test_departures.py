"""What leaves etcd with a member, under the conditions of real etcd."""

import pytest

from warrenmq.broker.definitions.metadata import DeleteQueue, PutQueue, PutVhost
from warrenmq.cluster.membership.leaving import Departures
from warrenmq.cluster.metadata.conditions import Absent, Alive
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import RawPut
from warrenmq.cluster.records import Member, encode_record, member_key, node_key
from warrenmq.cluster.sinks.sink_row import Copies, committed, copies_of

MEMBER = encode_record(Member("replica", 0))


class Cluster:
    """A cluster in etcd, whose members are records and nothing else."""

    def __init__(self, gateway: EtcdGateway, name: str) -> None:
        self.name = name
        self.metadata = EtcdMetadata(gateway, name)
        self.departures = Departures(name, self.metadata)

    def join(self, *nodes: str) -> None:
        self.metadata.commit([], [RawPut(member_key(self.name, node), MEMBER) for node in nodes])

    def run(self, node: str) -> None:
        self.metadata.commit([], [RawPut(node_key(self.name, node), b"{}")])

    def members(self) -> list[str]:
        return [each.key.decode().rpartition("/")[2] for each in self.metadata.records("members")]


@pytest.fixture
def cluster(gateway: EtcdGateway, cluster_name: str) -> Cluster:
    return Cluster(gateway, cluster_name)


@pytest.mark.parametrize("other", ["a", "z", "n1"])
def test_only_the_last_member_takes_the_cluster(cluster: Cluster, other: str) -> None:
    """Members before and after it in the order of names count, also one that has just joined."""
    cluster.metadata.apply([PutVhost(b"/", 0)])
    cluster.join("n", other)
    assert not cluster.departures.remove_cluster("n")
    assert cluster.members() == sorted(["n", other])
    assert cluster.departures.remove_member("n")
    assert not cluster.departures.remove_cluster("n")
    assert cluster.departures.remove_cluster(other)
    assert cluster.members() == [] and cluster.metadata.load().vhosts == []


def test_others_remove_only_a_member_that_does_not_run(cluster: Cluster) -> None:
    cluster.join("n1", "n2")
    cluster.run("n1")
    assert not cluster.departures.remove_member("n1")
    assert cluster.departures.remove_member("n2")
    assert cluster.members() == ["n1"]
    assert cluster.departures.remove_member("n1", is_own=True)
    assert cluster.departures.remove_member("n1")
    assert cluster.members() == []


def test_a_removal_that_no_longer_holds_leaves_the_others(cluster: Cluster) -> None:
    """One queue of many has been declared again since: it stays, and the others go."""
    cluster.metadata.apply([PutVhost(b"/", 0)])
    queues = [
        PutQueue(b"/", 0, b"q%d" % number, True, False, b"", node=b"n1") for number in range(120)
    ]
    for queue in queues:
        cluster.metadata.commit([Absent(queue)], [queue])
    found = cluster.departures.queues_of("n1")
    assert len(found) == 120 and cluster.departures.queues_of("n") == []
    cluster.departures.remove(
        [
            (
                [Alive(each, 1 if each.name == b"q7" else each.birth)],
                DeleteQueue(b"/", 0, each.name),
            )
            for each in found
        ]
    )
    assert [queue.name for queue in cluster.departures.queues_of("n1")] == [b"q7"]


def test_stages_of_a_member_go_with_it(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Another node that has them goes on; a batch that nobody else has is lost."""
    cluster.metadata.apply([PutVhost(b"/", 0)])
    copies: dict[bytes, Copies] = {
        b"both": {b"n1": [4], b"n2": [7, 8]},
        b"other": {b"n2": [9]},
        b"only": {b"n1": [5]},
        b"done": {},
    }
    for name, nodes in copies.items():
        row = committed(b"/", name, None, 3, 10, nodes, b"n1")
        cluster.metadata.commit([Absent(row)], [row])
    assert cluster.departures.give_up_stages("n1")
    rows = {row.name: row for row in cluster.metadata.load().sinks}
    assert {name: copies_of(row) for name, row in rows.items()} == {
        b"both": {b"n2": [7, 8]},
        b"other": {b"n2": [9]},
        b"only": {},
        b"done": {},
    }
    assert (rows[b"both"].mover, rows[b"both"].epoch) == (b"n2", 2)
    assert [row.batch for row in rows.values()] == [3] * 4
    assert "batch 3 of sink 'only' in vhost '/' is lost" in caplog.text
    assert "'both'" not in caplog.text
