"""Disks that are full, hang, are emptied or exchanged, and power cuts (cases t8, t9, t11, t19)."""

import random
import shutil
import threading
import time
from itertools import permutations
from pathlib import Path

from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.nodes.real_cluster import await_writable
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.cluster.workload_process import RecordedRun
from tests.support.stores.small_disk import SmallDisk
from warrenmq.wire.methods import BasicAck

# Confirms that show that the queues go on.
WORK_CONFIRMS = 20
# A disk hangs for so long (ms); within 10 s the queues go on without it.
HANG_MS = 30_000
HANG_LIMIT_MS = 10_000
# The disk hangs in this write of the journal after the start.
HANG_HIT = 400
# What is published to fill a disk, in 60 MB, and for how long the disk is full (s).
LARGE_QUEUE = b"workload-large"
LARGE_COUNT = 120
LARGE_BODY = bytes(500_000)
FULL_S = 10


class StoreFaults:
    """Disturbs the disks of nodes under the workload `run`."""

    def __init__(self, cluster: MirroredCluster, run: RecordedRun, numbers: random.Random) -> None:
        self._cluster = cluster
        self._run = run
        self._random = numbers

    # -- disks -------------------------------------------------------------------------------------

    def hang(self, name: str, is_master: bool) -> None:
        """Let a node's disk hang: a mirror is left out, a master hands over."""
        node = self._cluster[name]
        with self._run.fault("kill", name):
            node.kill()
            self._run.await_confirms(WORK_CONFIRMS)
            node.arm(f"journal.synced=delay:{HANG_MS}@{HANG_HIT}")
            node.start()
            self._cluster.await_in_sync()
            if is_master:
                self._cluster.spread()
        kind = "master's disk hangs" if is_master else "mirror's disk hangs"
        with self._run.fault(kind, name, HANG_LIMIT_MS):
            time.sleep(HANG_MS / 1000)
        node.arm("")
        # What waits behind the hanging write ends before the node is judged.
        with self._run.fault("kill", name):
            self._run.await_confirms(WORK_CONFIRMS)
            node.restart()

    def fill(self, name: str, disk: SmallDisk, is_master: bool) -> None:
        """Leave no free byte on a node's disk: a mirror is left out, publishers of a master wait.

        Large messages use up what the node keeps in reserve.
        """
        home = name if is_master else next(each for each in self._cluster.names if each != name)
        with self._run.fault("kill", name):
            self._cluster[name].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].start()
            self._cluster.await_in_sync()
            if is_master:
                self._cluster.spread()
        kind = f"{'master' if is_master else 'mirror'}'s disk full"
        with self._run.fault(kind, name), self._cluster.client(home) as client:
            client.declare(LARGE_QUEUE, durable=True)
            client.confirm_select()
            disk.fill()
            sender = threading.Thread(target=_publish_large, args=(client,))
            sender.start()
            time.sleep(FULL_S)
            if not is_master:
                self._run.await_confirms(WORK_CONFIRMS)
            disk.free()
            sender.join()
            confirmed = sum(isinstance(each, BasicAck) for each in client.confirms(LARGE_COUNT))
            self._run.await_confirms(WORK_CONFIRMS)
            channel = client.peer.channel()
            assert channel.delete(LARGE_QUEUE) >= confirmed

    def empty(self, name: str) -> None:
        """Empty the data directory of a node: it returns as another one, and gets everything."""
        node = self._cluster[name]
        with self._run.fault("disk emptied", name):
            node.kill()
            shutil.rmtree(node.data)
            self._run.await_confirms(WORK_CONFIRMS)
            node.launch()
            assert node.await_end() == 1
            assert "with another data directory" in node.log(), node.log()
            helper = next(other for other in self._cluster.names if other != name)
            self._cluster.await_forgotten_lease(name)
            printed = self._cluster[helper].ctl("forget_cluster_node", node.node)
            assert printed.code == 0, printed
            shutil.rmtree(node.data, ignore_errors=True)
            node.start()
            self._run.await_confirms(WORK_CONFIRMS)

    def restore(self, name: str, directory: Path) -> None:
        """Kill all nodes; one returns with the data directory of an earlier start, and first.

        Its copies must not count as complete: messages confirmed since then are on the others.
        """
        node = self._cluster[name]
        kept = directory / f"{name}-snapshot"
        with self._run.fault("kill", name):
            node.kill()
            shutil.copytree(node.data, kept)
            self._run.await_confirms(WORK_CONFIRMS)
            node.start()
            self._cluster.await_in_sync()
            self._run.await_confirms(WORK_CONFIRMS)
        with self._run.fault("older snapshot restored", name, is_lone_crash=True):
            for each in self._cluster.nodes.values():
                each.kill()
            shutil.rmtree(node.data)
            kept.rename(node.data)
            node.start()
            # A copy that counted as complete would lead by now.
            time.sleep(self._random.uniform(1, 6))
            for each in self._cluster.nodes.values():
                if each is not node:
                    each.launch()
            for each in self._cluster.nodes.values():
                each.await_ready()

    # -- power -------------------------------------------------------------------------------------

    def power_cut(self, order: tuple[str, ...], missing: str = "") -> None:
        """Kill all nodes at once; they start in this order, `missing` when the others serve."""
        nodes = self._cluster.nodes
        kind = "power cut, one missing" if missing else "power cut"
        with self._run.fault(kind, ", ".join(order), is_lone_crash=True):
            for node in nodes.values():
                node.kill()
            present = [name for name in order if name != missing]
            for name in present:
                nodes[name].launch()
                time.sleep(self._random.uniform(0, 2))
            for name in present:
                nodes[name].await_ready()
            self._run.await_confirms(WORK_CONFIRMS)
            if missing:
                nodes[missing].start()

    def orders(self) -> list[tuple[str, ...]]:
        """All orders in which the nodes may start."""
        return list(permutations(self._cluster.names))

    def last_first(self, name: str, other: str) -> None:
        """The last one that was in sync leads: those that died before it wait for it."""
        (last,) = set(self._cluster.names) - {name, other}
        nodes = self._cluster.nodes
        with self._run.fault("last in sync is missing", last, is_lone_crash=True):
            for each in (name, other):
                nodes[each].kill()
                self._run.await_confirms(WORK_CONFIRMS)
            nodes[last].kill()
            for each in (name, other):
                nodes[each].launch()
            for each in (name, other):
                nodes[each].await_ready()
            await_writable(self._cluster)
            time.sleep(self._random.uniform(1, 6))
            assert all(group.is_down for group in self._cluster.groups().values())
            nodes[last].start()
            eventually(
                lambda: not any(group.is_down for group in self._cluster.groups().values()),
                "all queues are served again",
            )
            self._run.await_confirms(WORK_CONFIRMS)


def _publish_large(client: ChannelPeer) -> None:
    for _ in range(LARGE_COUNT):
        client.publish(LARGE_QUEUE, LARGE_BODY, PERSISTENT)
