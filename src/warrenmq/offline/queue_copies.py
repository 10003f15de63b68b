"""What a data directory knows of its cluster: its node, and its copies of mirrored queues.

Who has the master of a queue, and which copies are in sync, is known to the cluster alone: a
directory has neither. A copy with the higher epoch, and in it the higher seq id, is the newer one.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.cluster.membership.identity import IdentityError, read_identity
from warrenmq.offline.data_directory import DataDirectory, VhostDirectory
from warrenmq.store.disk.snapshot import VhostSnapshot

UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class QueueCopy:
    """A copy of a mirrored queue.

    `epoch` is the highest one that the copy has seen, and `epoch_start` the seq id of the epoch's
    first message. All messages of the copy are below `next_seq`. `birth` tells the queue from
    others of its name that were deleted before, and is the same in all copies.
    """

    birth: int
    epoch: int
    epoch_start: int
    next_seq: int
    role: str = UNKNOWN
    in_sync: str = UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

    def line(self, queue: str) -> str:
        """The copy in words."""
        return (
            f"queue '{queue}' is a copy of a mirrored queue: epoch {self.epoch} from seq id {self.epoch_start} on, "
            f"next seq id {self.next_seq}; whether it was the master or a mirror, and in sync, is unknown"
        )


def copy_of(snapshot: VhostSnapshot, queue_id: int, birth: int) -> QueueCopy | None:
    """The copy that a vhost has of a queue; None for a queue that was never mirrored."""
    queue = snapshot.queue(queue_id)
    if queue is None or not queue.ledger.epochs:
        return None
    epoch, start = queue.ledger.epochs[-1]
    return QueueCopy(birth, int(epoch), int(start), int(queue.ledger.next_seq))


def births_of(definitions: Definitions, vhost: VhostDirectory) -> dict[int, int]:
    """The births of a vhost's queues in their cluster, by queue id; 0 for one of a lone node."""
    if vhost.definition is None:
        return {}
    name = vhost.definition.name
    return {queue.id: queue.birth for queue in definitions.queues if queue.vhost == name}


def member_of(directory: Path) -> dict[str, Any]:
    """Cluster and node of a data directory; {} for a lone node, and for a backup, which lacks them.

    An unreadable identity is reported as `error`.
    """
    try:
        identity = read_identity(directory)
    except IdentityError as error:
        return {"error": str(error)}
    if identity is None:
        return {}
    return {
        "cluster": identity.cluster,
        "cluster_id": identity.cluster_id,
        "node": identity.node,
        "replica_id": identity.replica_id,
    }


def lacks_definitions(directory: DataDirectory) -> bool:
    """Whether a directory is of a node of a cluster: definitions other than queues are in etcd.

    A backup of files has no identity of a node. It is known by its queues: only those of a cluster
    have births, and a node that runs alone has users.
    """
    own = directory.definitions
    is_member = bool(member_of(directory.path))
    return is_member or (not own.users and any([queue.birth for queue in own.queues]))


def member_line(member: dict[str, Any]) -> str:
    """`member_of` in words."""
    return str(member.get("error") or f"node {member['node']} of cluster {member['cluster']}")
