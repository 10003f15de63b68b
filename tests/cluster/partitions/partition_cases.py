"""Scenario `partitions` of `python -m tests.cluster.long`: plans of nemeses by name.

| case | what happens, with consumers at all nodes |
|---|---|
| `dead-mirrors` | mirrors die, the master's consumers go on, and one mirror returns alone |
| `parted-consumed` | a master is cut from the other nodes, all reach etcd, nothing is published |
| `parted` | the same, with publishers |
| `etcd-heals-first` | a master is cut from all, and reaches etcd before the other nodes |
| `cut-off` | a master is cut from all |
| `cut-from-etcd` | a master is cut from etcd |
| `etcd-pause` | etcd stands still for longer than leases last |
| `drains`, `rebalances` | masters move again and again |
| `slow-first` | a master dies, and its oldest mirror lags |
| `policy-cut` | a policy moves masters while a node is cut from etcd |
| `delete-etcd` | queues are deleted and declared again while etcd dies |
"""

from collections.abc import Sequence
from pathlib import Path

from tests.cluster.mirrored.failover import is_served
from tests.cluster.mirrored.mirrored_cluster import POLICY
from tests.cluster.nodes.long_scenarios import say
from tests.cluster.nodes.networks_here import make_network
from tests.cluster.partitions.nemeses import ETCD, Nemesis
from tests.cluster.partitions.partition_cluster import KINDS, PartitionCluster
from tests.cluster.partitions.rounds import Outcome, run_round
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT

STOCKS = ("single-stock", "stock")
MOVES = 10
DEAD, OTHER = b"dead-mirrors", b"other"
MASTER, MIRROR, THIRD = "n1", "n2", "n3"
SENT, ACKED = 600, 500


def _moves(kind: str) -> list[Nemesis]:
    return [
        Nemesis(kind, f"n{number % 3 + 1}", 5.0 * number, 3.0 if kind == "drain" else 2.0)
        for number in range(MOVES)
    ]


PLANS: dict[str, tuple[Sequence[str], Sequence[Nemesis]]] = {
    "parted-consumed": (STOCKS, [Nemesis("cut from nodes", MASTER, 1, 15)]),
    "parted": (KINDS, [Nemesis("cut from nodes", MASTER, 1, 15)]),
    "etcd-heals-first": (STOCKS, [Nemesis("etcd heals first", MASTER, 1, 12)]),
    "cut-off": (KINDS, [Nemesis("cut from all", MASTER, 1, 16)]),
    "cut-from-etcd": (KINDS, [Nemesis("cut from etcd", MASTER, 1, 16)]),
    "etcd-pause": (KINDS, [Nemesis("freeze etcd", ETCD, 1, 13)]),
    "drains": (KINDS, _moves("drain")),
    "rebalances": (KINDS, _moves("rebalance")),
    "slow-first": (
        KINDS,
        [Nemesis("slow link", MIRROR, 0, 8), Nemesis("kill", MASTER, 1, 3)],
    ),
    "policy-cut": (
        KINDS,
        [Nemesis("cut from etcd", MIRROR, 0, 14), Nemesis("policy", MASTER, 2, 6)],
    ),
    "delete-etcd": (
        KINDS,
        [Nemesis("kill etcd", ETCD, 1, 6)]
        + [Nemesis("delete", MASTER, 0.5 + number / 2, 0.4) for number in range(6)],
    ),
}  # fmt: skip


def run_plan(cluster: PartitionCluster, directory: Path, name: str) -> Outcome:
    """Run the plan of a case."""
    kinds, plan = PLANS[name]
    return run_round(cluster, directory, plan, kinds=kinds)


def dead_mirrors(cluster: PartitionCluster) -> None:
    """A mirror that died before messages were acked does not serve them when the master dies.

    The queue is down until the node of its master is back, and has what was left then.
    """
    printed = cluster[MASTER].ctl("set_policy", "dead", "^dead", POLICY)
    assert printed.code == 0, printed
    with cluster.client(MASTER) as client:
        client.declare(DEAD, durable=True)
        client.confirm_select()
        for number in range(SENT):
            client.publish(DEAD, b"%d" % number, PERSISTENT)
        client.confirms(SENT)
        cluster.await_in_sync_of(DEAD.decode())
        for name in (MIRROR, THIRD):
            cluster[name].kill()
        for _ in range(ACKED):
            client.ack(client.get(DEAD).got.delivery_tag)
        # A confirm of another queue of the node shows that the acks are on its disk.
        other = client.peer.channel()
        other.declare(OTHER, durable=True)
        other.confirm_select()
        other.publish(OTHER, b"", PERSISTENT)
        other.confirms(1)
        assert client.count(DEAD) == SENT - ACKED
    cluster[MASTER].kill()
    cluster[MIRROR].start()
    eventually(lambda: cluster.nodes_of(DEAD.decode())[0] != MASTER, "the master is dead", 0.1)
    master, _mirrors, _synced = cluster.nodes_of(DEAD.decode())
    assert not master, f"{master} serves, although it lacks acks"
    for name in (MASTER, THIRD):
        cluster[name].launch()
    for name in (MASTER, THIRD):
        cluster[name].await_ready()
    cluster.await_linked()
    with cluster.client(THIRD) as client:
        eventually(lambda: is_served(client.peer.channel(), DEAD), "the master is back")
        left = [int(body) for body in client.drain(DEAD)]
        assert left == list(range(ACKED, SENT)), f"{len(left)} messages from {left[:1]} on"
        for queue in (DEAD, OTHER):
            client.delete(queue)


def run_partition_cases(directory: Path, only: Sequence[str]) -> None:
    """Run the cases whose names begin with one of `only`, all if there is none.

    Each has a cluster of its own. AssertionError if some fail, at the end.
    """
    failed = []
    for name in ("dead-mirrors", *PLANS):
        if only and not any(name.startswith(each) for each in only):
            continue
        place = directory / name
        try:
            with make_network() as network, PartitionCluster(network, place) as cluster:
                if name in PLANS:
                    _run_clean(cluster, place, name)
                else:
                    dead_mirrors(cluster)
        except AssertionError as error:
            failed.append(name)
            say(f"case {name} FAILED: {error}")
        else:
            say(f"case {name}: fine")
    assert not failed, f"these cases failed: {', '.join(failed)}"


def _run_clean(cluster: PartitionCluster, directory: Path, name: str) -> None:
    outcome = run_plan(cluster, directory, name)
    say(outcome.line())
    assert outcome.verdict.is_clean, outcome.findings()
