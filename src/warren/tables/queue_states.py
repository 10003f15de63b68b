"""What a store knows of its queues as wholes: numbering, and how many messages should be there."""

from dataclasses import dataclass
from pathlib import Path

from warren.broker.metadata import PutQueue
from warren.offline.data_directory import files_of, opened
from warren.store.disk.snapshot import NoStore, VhostSnapshot
from warren.tables.planning import PlanError


@dataclass(frozen=True)
class QueueState:
    """One queue. `messages` are alive in the index and in the journal, whether they can be read or not.

    What is at or below `delivered_upto` was delivered before.
    """

    definition: PutQueue
    next_seq: int
    delivered_upto: int
    messages: int


@dataclass(frozen=True)
class VhostState:
    """A vhost's queues, those that a definition names, by id; and which store it is."""

    id: int
    store_id: bytes
    queues: dict[int, QueueState]


def vhost_state(directory: Path, vhost: str) -> VhostState:
    """Of a data directory or a backup. Raises PlanError when there is no such vhost, ToolError when nothing can be read."""
    with opened(directory) as data:
        for found in data.vhosts:
            definition = found.definition
            if definition is None or found.name != vhost:
                continue
            queues = {queue.id: queue for queue in data.definitions.queues if queue.vhost == definition.name}
            with files_of(found) as files:
                try:
                    snapshot = VhostSnapshot(files)
                except NoStore as error:
                    raise PlanError(f"{directory}: vhost '{vhost}': {error}") from None
                return VhostState(
                    int(found.id),
                    snapshot.store_id,
                    {int(id): _queue_state(definition, snapshot) for id, definition in queues.items()},
                )
    raise PlanError(f"{directory} has no vhost '{vhost}'")


def _queue_state(definition: PutQueue, snapshot: VhostSnapshot) -> QueueState:
    queue = snapshot.queue(definition.id)
    if queue is None:
        return QueueState(definition, 1, 0, 0)
    indexed = sum(int(segment.live_persistent) for segment in snapshot.segments(queue))
    log = queue.log
    return QueueState(definition, int(log.next_seq), int(log.delivered_upto), indexed + len(queue.positions))
