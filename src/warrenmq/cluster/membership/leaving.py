"""How a member leaves its cluster for good, by its own will (reset) or by that of others (forget).

A member that leaves takes its queues with it, and what goes with them: their bindings, and the
exchanges that are deleted with their last binding. A mirrored queue stays if another member has a
complete copy. The stages of a batch that it has go, too; if no other member has them, the batch is
lost. The last member takes the cluster with it.

Queues go before the member. So whoever is stopped half-way finds the member still there, and what
is left of its queues.
"""

from __future__ import annotations

import logging
from typing import Final, cast

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.kinds import QUEUES, SINKS
from warrenmq.broker.definitions.metadata import Change, DeleteQueue, PutQueue, PutSink
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group_change import group_of, with_group
from warrenmq.cluster.groups.transitions import forget_node
from warrenmq.cluster.metadata import operations
from warrenmq.cluster.metadata.conditions import Alive, Condition, LastWritten, Unchanged
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.keys import change_of, prefix_of
from warrenmq.cluster.records import MEMBERS, member_key, node_key
from warrenmq.cluster.sinks.sink_row import without_node
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.cluster")

# Removals of one transaction. Most succeed, and one that does not makes all be tried singly.
_BATCH: Final = 50

# A removal, and the conditions under which it is made.
Step = tuple[list[Condition], Change]


class Departures:
    """Removes members from `cluster`. All methods wait for etcd and raise MetadataError."""

    def __init__(self, cluster: str, metadata: EtcdMetadata) -> None:
        self._cluster = cluster
        self._metadata = metadata

    def queues_of(self, node: str) -> list[PutQueue]:
        """The queues that live on `node` or have a copy there, durable or not."""
        found = [
            cast(PutQueue, change_of(each.key, each.value, each.create_revision, each.mod_revision))
            for each in self._metadata.records(QUEUES.keys.name)
        ]
        return [queue for queue in found if _is_on(queue, node.encode())]

    def remove(self, steps: list[Step]) -> None:
        """Make all removals; one whose condition does not hold has been made already."""
        for start in range(0, len(steps), _BATCH):
            batch = steps[start : start + _BATCH]
            conditions = [condition for wanted, _ in batch for condition in wanted]
            if self._metadata.commit(conditions, [change for _, change in batch]) is None:
                for wanted, change in batch:
                    self._metadata.commit(wanted, [change])

    def give_up(self, queues: list[PutQueue]) -> None:
        """Write `queues`, each of which `without_copy` has changed; some may have changed since."""
        for start in range(0, len(queues), _BATCH):
            batch = queues[start : start + _BATCH]
            conditions: list[Condition] = [LastWritten(each, each.revision) for each in batch]
            if self._metadata.commit(conditions, list(batch)) is None:
                for each in batch:
                    self._metadata.commit([LastWritten(each, each.revision)], [each])

    def give_up_stages(self, node: str) -> bool:
        """Take `node` out of the rows of sinks; False: rows have changed meanwhile, try again."""
        is_done = True
        for each in self._metadata.records(SINKS.keys.name):
            row = cast(
                PutSink, change_of(each.key, each.value, each.create_revision, each.mod_revision)
            )
            rest = without_node(row, node.encode())
            if rest is None:
                continue
            if self._metadata.commit([LastWritten(row, row.revision)], [rest]) is None:
                is_done = False
            elif not rest.copies:
                logger.error(
                    "batch %d of sink '%s' in vhost '%s' is lost: only node %s had its stages",
                    row.batch,
                    name_text(row.name),
                    name_text(row.vhost),
                    node,
                )
        return is_done

    def remove_member(self, node: str, is_own: bool = False) -> bool:
        """Remove the member `node`; False if it runs, or has joined again.

        The record of a run that has just ended may still be there: a node that leaves by its own
        will (`is_own`) knows that it does not run.
        """
        key = member_key(self._cluster, node)
        found = self._metadata.get(key)
        if found is None:
            return True
        conditions = [Unchanged(key, found.mod_revision)]
        if not is_own:
            conditions.append(Unchanged(node_key(self._cluster, node), 0))
        return self._metadata.commit(conditions, [operations.RawDelete(key)]) is not None

    def remove_cluster(self, node: str) -> bool:
        """Remove the cluster with its last member `node`; False if that is not the last one."""
        key = member_key(self._cluster, node)
        found = self._metadata.get(key)
        if found is None:
            return False
        members = prefix_of(self._cluster, MEMBERS)
        everything = prefix_of(self._cluster)
        result = self._metadata.gateway.transact(
            [
                operations.is_modified(key, found.mod_revision),
                # No other member sorts before it or after it.
                _has_none(members, key),
                _has_none(key + b"\0", operations.end_of(members)),
            ],
            [operations.RawDelete(everything, operations.end_of(everything))],
        )
        return result.succeeded


def _has_none(start: bytes, end: bytes) -> operations.Compare:
    """Holds if there is no key from `start` to before `end`."""
    return operations.Compare(start, "CREATE", operations.EQUAL, 0, end)


def _is_on(queue: PutQueue, node: bytes) -> bool:
    group = group_of(queue)
    return queue.node == node or (group is not None and node in group.recoverable)


def without_copy(queue: PutQueue, node: str, is_forced: bool) -> PutQueue | None:
    """The definition of a mirrored queue without its copy on `node`, which does not run.

    None: the queue goes with the node. It has no other copy, or `is_forced` is False and no other
    one is complete.
    """
    group = group_of(queue)
    rest = None if group is None else forget_node(group, node.encode(), is_forced)
    return None if rest is None else with_group(queue, rest)


def removal_steps(
    broker: Broker, copy: DefinitionsCopy, queues: list[PutQueue], now_ms: int
) -> list[Step]:
    """Take `queues` out of the vhosts of this node; returns the removals that this means for all.

    They are queues of this node, or of one that is down.
    """
    steps: list[Step] = []
    for queue in queues:
        alive: Step = ([Alive(queue, queue.birth)], DeleteQueue(queue.vhost, 0, queue.name))
        steps.append(alive)
        steps.extend(
            step
            for step in copy.removals(_removed_with(broker, queue, now_ms))
            if not isinstance(step[1], DeleteQueue)
        )
    return steps


def _removed_with(broker: Broker, queue: PutQueue, now_ms: int) -> list[Change]:
    vhost = broker.vhosts.get(queue.vhost)
    if vhost is None:
        return []
    own = vhost.queues.get(queue.name)
    if own is not None and own.definition.birth == queue.birth:
        return vhost.remove_queue(own, now_ms)
    remote = vhost.remote_queues.get(queue.name)
    if remote is not None and remote.definition.birth == queue.birth:
        return vhost.delete_abandoned(remote, now_ms)
    return []
