"""A node's place in its cluster: joins it, comes back to it, and refuses what does not fit.

The store of the cluster names each member's data directory (`replica_id`), and each data directory
names its cluster and its member. Where the two disagree, the node does not start: an emptied
directory has lost what the cluster believes to be there, a copied one would serve the same messages
twice, and a wiped store knows nothing of the queues in the directory.

All steps wait for etcd, so they run in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteExchange,
    DeleteQueue,
    MetadataDamaged,
    MetadataError,
    PutExchange,
    PutQueue,
)
from warrenmq.cluster.errors import ClusterError
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.succession import is_only_complete_copy
from warrenmq.cluster.membership.identity import DirectoryIdentity
from warrenmq.cluster.membership.secret_rotation import SECRET_BYTES
from warrenmq.cluster.metadata.conditions import Alive, NodeIs, Unchanged
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.keys import parts_of
from warrenmq.cluster.metadata.operations import KeyValue, RawDelete, RawPut
from warrenmq.cluster.metadata.uploading import UploadConflict
from warrenmq.cluster.records import (
    MEMBERS,
    NODES,
    ClusterMeta,
    Member,
    RunningNode,
    decode_record,
    encode_record,
    member_key,
    meta_key,
    node_key,
)
from warrenmq.vocabulary.fail_points import fail_point

logger = logging.getLogger("warren.cluster")

# Bytes by chance in the id of a cluster, a replica or an incarnation.
ID_BYTES: Final = 8
# How long a lease outlives its last renewal (s).
LEASE_S: Final = 10


class NotAdmitted(ClusterError):
    """The node does not belong to the cluster as it is; the text is one line."""


class NotYet(Exception):
    """The node has to wait; the text says for what."""


class Membership:
    """The place of the node `node` in `cluster`, as `metadata` has it.

    `random_bytes` makes ids and secrets; `now_ms` tells the time.
    """

    def __init__(
        self,
        cluster: str,
        node: str,
        metadata: EtcdMetadata,
        random_bytes: Callable[[int], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._metadata = metadata
        self._random_bytes = random_bytes
        self._now_ms = now_ms

    # -- joining and coming back -------------------------------------------------------------------

    def meta(self) -> ClusterMeta | None:
        """The cluster, None if etcd has none of this name."""
        found = self._metadata.get(meta_key(self._cluster))
        return None if found is None else decode_record(found.value, ClusterMeta)

    def check_directory(self, known: DirectoryIdentity, meta: ClusterMeta | None) -> None:
        """Check that a directory that has joined belongs to the cluster. Raises NotAdmitted."""
        if known.cluster != self._cluster:
            raise NotAdmitted(
                f"the data directory belongs to cluster '{known.cluster}', not to '{self._cluster}'"
            )
        if known.node != self._node:
            raise NotAdmitted(
                f"the data directory belongs to node '{known.node}', not to '{self._node}'"
            )
        if not known.has_joined:
            return
        if meta is None:
            raise NotAdmitted(
                f"etcd has no cluster '{self._cluster}', of which this node is a member: restore etcd, or "
                "take the messages out of the data directory with a node that runs alone"
            )
        if meta.id != known.cluster_id:
            raise NotAdmitted(
                f"etcd has another cluster '{self._cluster}' (id {meta.id}) than the one that this node has "
                f"joined (id {known.cluster_id})"
            )

    def new_identity(
        self, known: DirectoryIdentity | None, meta: ClusterMeta | None, has_queues: bool
    ) -> DirectoryIdentity:
        """The identity of a data directory that is about to join, or to make the cluster.

        The caller stores it before anything else, so that every step can be repeated. `has_queues`:
        the directory has queues from when the node ran alone. Raises NotAdmitted.
        """
        if known is not None and (meta is None or meta.id == known.cluster_id):
            return known
        if has_queues and meta is not None:
            raise NotAdmitted(
                f"the data directory has queues of a node that ran alone, and cluster '{self._cluster}' is "
                "there already: a node joins it with an empty directory, or after `warrenctl reset`"
            )
        cluster_id = self._random_bytes(ID_BYTES).hex() if meta is None else meta.id
        return DirectoryIdentity(
            self._cluster, cluster_id, self._node, self._random_bytes(ID_BYTES).hex()
        )

    def make_cluster(
        self, identity: DirectoryIdentity, secret: str, definitions: list[Change]
    ) -> None:
        """Make the cluster with these first `definitions` and this node as its member.

        `secret`: what its nodes prove to each other; "" makes one. Raises NotYet while another node
        makes the cluster.
        """
        meta = ClusterMeta(
            identity.cluster_id,
            secret or self._random_bytes(SECRET_BYTES).hex(),
            self._now_ms(),
        )
        records = [
            RawPut(meta_key(self._cluster), encode_record(meta)),
            RawPut(member_key(self._cluster, self._node), self._member(identity)),
        ]
        try:
            self._metadata.upload(definitions, records)
        except UploadConflict as error:
            raise NotYet(f"the definitions of the cluster: {error}") from None

    def join(self, identity: DirectoryIdentity) -> None:
        """Make the node a member, with the data directory of `identity`. Raises NotAdmitted."""
        members = self.members()
        own = members.get(self._node)
        if own is not None and own.replica_id == identity.replica_id:
            return
        if own is not None:
            raise NotAdmitted(
                f"cluster '{self._cluster}' has a member '{self._node}' with another data directory: start "
                "the node with that directory, or give it up with `warrenctl forget_cluster_node`"
            )
        for name, member in members.items():
            if member.replica_id == identity.replica_id:
                raise NotAdmitted(f"the data directory is a copy of that of node '{name}'")
        key = member_key(self._cluster, self._node)
        put = RawPut(key, self._member(identity))
        if self._metadata.commit([Unchanged(key, 0)], [put]) is None:
            raise NotYet(f"another node '{self._node}' that is joining cluster '{self._cluster}'")

    def check_member(self, known: DirectoryIdentity) -> int:
        """Check that the cluster still has the member of `known`; returns the latest run of it.

        Raises NotAdmitted.
        """
        found = self._metadata.get(member_key(self._cluster, self._node))
        if found is None:
            raise NotAdmitted(
                f"node '{self._node}' thinks that it is a member of cluster '{self._cluster}', but the "
                "cluster disagrees: it was forgotten; reset it to join again"
            )
        member = decode_record(found.value, Member)
        if member.replica_id != known.replica_id:
            raise NotAdmitted(
                f"member '{self._node}' of cluster '{self._cluster}' has another data directory (replica "
                f"{member.replica_id}) than this one (replica {known.replica_id})"
            )
        return member.incarnation

    def _member(self, identity: DirectoryIdentity) -> bytes:
        return encode_record(Member(identity.replica_id, self._now_ms()))

    # -- running -----------------------------------------------------------------------------------

    def earlier_run(self) -> tuple[RunningNode, int] | None:
        """The record of an earlier run of this node, and its birth, while it is there."""
        found = self._metadata.get(node_key(self._cluster, self._node))
        if found is None:
            return None
        return decode_record(found.value, RunningNode), found.create_revision

    def register(self, record: RunningNode) -> tuple[int, int]:
        """Announce that the node runs; returns its lease and its birth.

        Raises NotYet while there is a record of another run, or no member with this node's data
        directory: then etcd was wiped, or the node was forgotten while it stood still.
        """
        key = node_key(self._cluster, self._node)
        own_key = member_key(self._cluster, self._node)
        own = self._metadata.get(own_key)
        member = None if own is None else decode_record(own.value, Member)
        if own is None or member is None or member.replica_id != record.replica_id:
            raise NotYet(f"cluster '{self._cluster}' to have this node as its member again")
        found = self._metadata.get(key)
        if found is not None:
            running = decode_record(found.value, RunningNode)
            if (running.replica_id, running.incarnation) == (record.replica_id, record.incarnation):
                # An attempt whose answer was lost.
                return found.lease, found.create_revision
            raise NotYet(f"the node of this name that runs at {running.host}:{running.port}")
        lease = self._metadata.gateway.grant(LEASE_S)
        birth = self._metadata.commit(
            [Unchanged(key, 0), Unchanged(own_key, own.mod_revision)],
            [
                RawPut(key, encode_record(record), lease),
                RawPut(
                    own_key,
                    encode_record(msgspec.structs.replace(member, incarnation=record.incarnation)),
                ),
            ],
        )
        if birth is None:
            self._metadata.gateway.revoke(lease)
            raise NotYet("a node of this name that has just started")
        fail_point("node.registered")
        return lease, birth

    def update(self, record: RunningNode, lease: int, birth: int) -> bool:
        """Announce another `record` of this run; False if the run has no record any more."""
        key = node_key(self._cluster, self._node)
        put = RawPut(key, encode_record(record), lease)
        return self._metadata.commit([NodeIs(self._node.encode(), birth)], [put]) is not None

    def end_run(self, birth: int) -> None:
        """Remove the record of the run with this birth: it has ended."""
        self._metadata.commit(
            [NodeIs(self._node.encode(), birth)], [RawDelete(node_key(self._cluster, self._node))]
        )

    def forget_transient(self, definitions: Definitions) -> None:
        """Remove from the cluster, and from `definitions`, what went with an earlier run.

        These are the transient queues of this node that no other node has a complete copy of. When
        no node of the cluster runs, transient exchanges go too: they last as long as the cluster.
        """
        node = self._node.encode()
        gone: list[PutQueue | PutExchange] = [
            queue
            for queue in definitions.queues
            if queue.node == node and not queue.durable and not _is_elsewhere(queue)
        ]
        if not self._metadata.records(NODES):
            gone.extend(each for each in definitions.exchanges if not each.durable)
        for each in gone:
            removal: Change = DeleteExchange(each.vhost, each.name)
            if isinstance(each, PutQueue):
                removal = DeleteQueue(each.vhost, 0, each.name)
            self._metadata.commit([Alive(each, each.birth)], [removal])
        names = {(type(each), each.vhost, each.name) for each in gone}
        definitions.queues = [each for each in definitions.queues if each not in gone]
        definitions.exchanges = [each for each in definitions.exchanges if each not in gone]
        definitions.bindings = [
            each
            for each in definitions.bindings
            if (PutExchange, each.vhost, each.source) not in names
            and (
                PutQueue if each.destination_is_queue else PutExchange,
                each.vhost,
                each.destination,
            )
            not in names
        ]

    # -- the others --------------------------------------------------------------------------------

    def members(self) -> dict[str, Member]:
        """All members, by name."""
        found = self._metadata.records(MEMBERS)
        return {name_of(each.key): decode_record(each.value, Member) for each in found}

    def running(self) -> dict[str, RunningNode]:
        """All running nodes, by name."""
        found = self._metadata.records(NODES)
        return {name_of(each.key): decode_record(each.value, RunningNode) for each in found}


def _is_elsewhere(queue: PutQueue) -> bool:
    """Whether another node than the queue's own has all of its confirmed messages, or may have."""
    try:
        group = group_of(queue)
    except MetadataDamaged:
        return True
    return group is not None and not is_only_complete_copy(group, queue.node)


def name_of(key: bytes) -> str:
    """The node that a record in MEMBERS or NODES is about."""
    return parts_of(key)[1][0].decode(errors="replace")


def running_node(record: KeyValue) -> RunningNode | None:
    """The running node that a record is about, None if nobody can tell where it is."""
    try:
        return decode_record(record.value, RunningNode)
    except MetadataError as error:
        logger.error("node %s cannot be linked with: %s", name_of(record.key), error)
        return None
