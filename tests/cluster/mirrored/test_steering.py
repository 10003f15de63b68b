"""What operators see of mirrored queues on three real nodes, and how they steer them."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.awaiting import eventually
from tests.support.cluster.trio import HOST, ClusterNode, ClusterNodes, channels
from tests.support.etcd import EtcdServer

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)
ALL = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
MANUAL = '{"ha-mode":"all"}'
N1, N2, N3 = (f"n{number}@{HOST}" for number in (1, 2, 3))
COLUMNS = ("name", "pid", "slave_pids", "synchronised_slave_pids", "policy", "state")


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer) -> Iterator[list[ClusterNode]]:
    """Three nodes; each test has a policy and queues of its own."""
    directory = tmp_path_factory.mktemp("steering")
    with ClusterNodes(directory, etcd.url, "n1", "n2", "n3", cluster="steering") as cluster:
        yield cluster.nodes


def do(node: ClusterNode, *arguments: str) -> None:
    printed = node.ctl(*arguments)
    assert printed.code == 0, printed


def status(node: ClusterNode, queue: str) -> dict[str, Any]:
    """What `mirror_status` says."""
    printed = node.ctl("mirror_status", queue, "--formatter", "json")
    assert printed.code == 0, printed
    found = json.loads(printed.out)
    assert isinstance(found, dict)
    return found


def synced(node: ClusterNode, queue: str) -> set[str]:
    """The nodes of the synchronised mirrors."""
    return set(status(node, queue)["synchronised_slave_nodes"])


def lags(node: ClusterNode, queue: str) -> list[int | None]:
    """How many messages the mirrors lack; [] for a queue that is not mirrored yet."""
    if node.ctl("mirror_status", queue).code:
        return []
    return [each["lag_messages"] for each in status(node, queue)["mirrors"]]


def is_level(node: ClusterNode, queue: str, *mirrors: str) -> Callable[[], bool]:
    """Whether exactly these nodes have mirrors, all synchronised."""

    def check() -> bool:
        found = status(node, queue)
        return set(found["slave_nodes"]) == set(mirrors) == synced(node, queue)

    return check


def masters(node: ClusterNode, prefix: str) -> dict[str, str]:
    """The nodes of masters by queue; "" for one that is down."""
    found = {}
    for name, leader, state in node.table("list_queues", "name", "leader", "state"):
        if name.startswith(prefix):
            found[name] = "" if state == "down" else leader
    return found


def declare(channel: BlockingChannel, queue: str, count: int) -> None:
    """Declare a queue with `count` confirmed messages."""
    channel.queue_declare(queue, durable=True)
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)


def drained(channel: BlockingChannel, queue: str) -> list[int]:
    """The numbers of the messages, which are taken."""
    numbers: list[int] = []
    while True:
        method, _properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return numbers
        assert body is not None
        numbers.append(int(body))


def test_the_example_of_the_manual(trio: list[ClusterNode]) -> None:
    """M31, with a node of this cluster: the queue moves to the node that the policy names."""
    node = trio[0]
    with channels(trio[1:2]) as [channel]:
        declare(channel, "hello1", 3)
        definition = f'{{"ha-mode":"nodes","ha-params":["{N3}"],"ha-sync-mode":"automatic"}}'
        do(node, "set_policy", "--apply-to", "queues", "hello-ha", "^hello", definition)
        eventually(lambda: masters(node, "hello") == {"hello1": N3}, "the queue moves")
        eventually(is_level(node, "hello1"), "the first copy goes")
        assert status(node, "hello1")["messages"] == 3
        assert drained(channel, "hello1") == [0, 1, 2]
    do(node, "clear_policy", "hello-ha")


def test_a_policy_adds_mirrors_and_goes(trio: list[ClusterNode]) -> None:
    node = trio[0]
    two = '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
    do(node, "set_policy", "add", "^add", two)
    with channels(trio[:1]) as [channel]:
        declare(channel, "add1", 20)
        assert len(status(node, "add1")["slave_nodes"]) == 1
        do(node, "set_policy", "add", "^add", ALL)
        eventually(is_level(node, "add1", N2, N3), "a mirror is added and synchronised")
        for each in trio:
            [row] = [row for row in each.table("list_queues", *COLUMNS) if row[0] == "add1"]
            name, pid, slaves, synced_slaves, policy, state = row
            assert (name, policy, state) == ("add1", "add", "running")
            assert pid.startswith(f"<{N1}.2.")
            assert slaves.startswith("[<") and slaves.count("@") == 2
            assert sorted(slaves.strip("[]").split(", ")) == sorted(
                synced_slaves.strip("[]").split(", ")
            )
            found = status(each, "add1")
            assert (found["node"], found["state"], found["messages"]) == (N1, "running", 20)
            assert sorted(found["ring"]) == sorted(found["recoverable_slaves"]) == [N1, N2, N3]
            assert found["lost_if_stops"][N1]["messages"] == 0
            assert lags(each, "add1") == [0, 0]
        do(node, "clear_policy", "add")
        eventually(
            lambda: node.ctl("mirror_status", "add1").err == "Error:\nnot_mirrored\n",
            "the queue is mirrored no more",
        )
        for number in range(20, 25):
            channel.basic_publish("", "add1", b"%d" % number, PERSISTENT)
        assert drained(channel, "add1") == list(range(25))


def test_a_manual_synchronisation(trio: list[ClusterNode]) -> None:
    node, other = trio[0], trio[1]
    with channels(trio[:1]) as [channel]:
        declare(channel, "sync1", 30)
        do(node, "set_policy", "sync", "^sync", MANUAL)
        eventually(lambda: lags(other, "sync1") == [30, 30], "two mirrors have made their offers")
        assert synced(other, "sync1") == set()
        assert other.ctl("cancel_sync_queue", "sync1").out == "not_syncing\n"
        do(other, "sync_queue", "sync1")
        assert synced(other, "sync1") == {N2, N3}
        do(other, "sync_queue", "sync1")
        assert status(node, "sync1")["sync_messages"] is None
        assert drained(channel, "sync1") == list(range(30))
    do(node, "clear_policy", "sync")


def test_masters_leave_a_drained_node_and_spread_again(trio: list[ClusterNode]) -> None:
    node, drain = trio[0], trio[2]
    do(node, "set_policy", "move", "^move", ALL)
    names = [f"move{number}" for number in range(4)]
    with channels(trio[:1]) as [channel]:
        with channels([drain]) as [there]:
            for name in names:
                declare(there, name, 5)
        eventually(lambda: all(is_level(node, name, N1, N2)() for name in names), "all are level")
        assert set(masters(node, "move").values()) == {N3}
        do(drain, "drain")
        eventually(lambda: set(masters(node, "move").values()) <= {N1, N2}, "the masters move away")
        for name in names:
            channel.basic_publish("", name, b"5", PERSISTENT)
        do(drain, "revive")
        eventually(lambda: all(N3 in synced(node, name) for name in names), "all are level again")
        assert N3 not in masters(node, "move").values()
        printed = node.ctl("rebalance", "all", "--queue-pattern", "^move", "--formatter", "json")
        assert printed.code == 0, printed
        counts = [list(masters(node, "move").values()).count(each) for each in (N1, N2, N3)]
        assert sorted(counts) == [1, 1, 2]
        for name in names:
            assert drained(channel, name) == list(range(6))
    do(node, "clear_policy", "move")


def test_a_paused_queue_stays_paused_when_its_master_moves(trio: list[ClusterNode]) -> None:
    node, other, drain = trio
    do(node, "set_policy", "pause", "^pause", ALL)
    with channels(trio[:1]) as [channel]:
        with channels([drain]) as [there]:
            declare(there, "pause1", 3)
        eventually(is_level(node, "pause1", N1, N2), "all copies are level")
        do(other, "pause_queue", "pause1")
        assert drained(channel, "pause1") == []
        do(drain, "drain")
        eventually(lambda: masters(node, "pause")["pause1"] in (N1, N2), "the master moves")
        assert {"pause1": "paused"}.items() <= states(node).items()
        assert drained(channel, "pause1") == []
        do(node, "resume_queue", "pause1")
        assert drained(channel, "pause1") == [0, 1, 2]
        do(drain, "revive")
    do(node, "clear_policy", "pause")


def states(node: ClusterNode) -> dict[str, str]:
    """The states of all queues."""
    return dict(node.table("list_queues", "name", "state"))


def test_a_vhost_goes_with_its_mirrored_queues_and_may_come_again(trio: list[ClusterNode]) -> None:
    node = trio[0]
    parameters = pika.URLParameters(node.uri)
    parameters.virtual_host = "mirrored"
    for _ in range(2):
        do(node, "add_vhost", "mirrored")
        do(node, "set_permissions", "-p", "mirrored", "guest", ".*", ".*", ".*")
        do(node, "set_policy", "-p", "mirrored", "all", ".*", ALL)
        for each in trio:
            # A node that is not done with the deletion follows nothing.
            eventually(partial(_has_policy, each), "the vhost is there")
        channel = pika.BlockingConnection(parameters).channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"m", PERSISTENT)
        do(node, "delete_vhost", "mirrored")


def _has_policy(node: ClusterNode) -> bool:
    printed = node.ctl("-s", "list_policies", "-p", "mirrored")
    return printed.code == 0 and printed.out.count("\n") == 1


def test_a_forgotten_node_takes_no_mirrored_queue_with_it(trio: list[ClusterNode]) -> None:
    """The last test of this file: a node is gone for good.

    Forced, a queue whose only complete copy was there goes on with the best one left.
    """
    node, gone = trio[0], trio[2]
    do(node, "set_policy", "kept", "^kept", ALL)
    with channels([gone]) as [there]:
        declare(there, "kept1", 20)
        declare(there, "part1", 20)
    eventually(is_level(node, "kept1", N1, N2), "the mirrors are in sync", 0.1)
    do(node, "set_policy", "part", "^part", MANUAL)
    eventually(lambda: lags(node, "part1") == [20, 20], "two mirrors have made their offers")
    assert gone.stop() == 0
    eventually(lambda: masters(node, "kept")["kept1"] in (N1, N2), "a mirror is promoted")
    eventually(
        lambda: "stop_app" not in node.ctl("forget_cluster_node", N3).err, "its record is gone"
    )
    refused = node.ctl("forget_cluster_node", N3)
    assert refused.code == 69 and "'part1' in vhost '/'" in refused.err, refused
    assert "kept1" not in refused.err
    do(node, "forget_cluster_node", N3, "--force")
    eventually(lambda: masters(node, "part")["part1"] in (N1, N2), "the queue goes on")
    for queue in ("kept1", "part1"):
        assert N3 not in status(node, queue)["recoverable_slaves"]
    with channels([node]) as [channel]:
        assert drained(channel, "kept1") == list(range(20))
        declare(channel, "part1", 3)
        assert drained(channel, "part1") == [0, 1, 2]
