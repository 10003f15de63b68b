"""What a store knows of its queues as wholes: numbering, and how many messages should be there."""

from dataclasses import dataclass
from pathlib import Path

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.offline.data_directory import files_of, opened
from warrenmq.store.disk.files import journal_path
from warrenmq.store.disk.snapshot import NoStore, VhostSnapshot
from warrenmq.store.disk.store_reader import StoreReport
from warrenmq.tables.planning import PlanError


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
    """A vhost's queues, those that a definition names, by id; and which store it is.

    `waiting` are messages that sinks have committed and that are in no queue yet, by the names of sinks. `damage` says what
    is lost of the store without anybody knowing how many messages that concerns.
    """

    id: int
    store_id: bytes
    queues: dict[int, QueueState]
    waiting: dict[bytes, int]
    damage: list[str]


def vhost_state(directory: Path, vhost: str) -> VhostState:
    """Of a data directory or a backup. Raises PlanError when there is no such vhost, ToolError when nothing can be read."""
    with opened(directory) as data:
        for found in data.vhosts:
            definition = found.definition
            if definition is None or found.name != vhost:
                continue
            queues = {
                queue.id: queue
                for queue in data.definitions.queues
                if queue.vhost == definition.name
            }
            with files_of(found) as files:
                try:
                    snapshot = VhostSnapshot(files)
                except NoStore as error:
                    raise PlanError(f"{directory}: vhost '{vhost}': {error}") from None
                waiting = {}
                for sink in data.definitions.sinks:
                    count = sum(_alive(snapshot, stage) for stage in sink.stages)
                    if sink.vhost == definition.name and count:
                        waiting[sink.name] = count
                return VhostState(
                    int(found.id),
                    snapshot.store_id,
                    {int(id): _queue_state(queue, snapshot) for id, queue in queues.items()},
                    waiting,
                    _damage(snapshot.report),
                )
    raise PlanError(f"{directory} has no vhost '{vhost}'")


def _queue_state(definition: PutQueue, snapshot: VhostSnapshot) -> QueueState:
    queue = snapshot.queue(definition.id)
    if queue is None:
        return QueueState(definition, 1, 0, 0)
    log = queue.ledger
    return QueueState(
        definition, int(log.next_seq), int(log.delivered_upto), _alive(snapshot, int(definition.id))
    )


def _damage(report: StoreReport) -> list[str]:
    found = [f"{line} is missing" for line in report.missing_journal]
    found += [
        f"{journal_path(row.file_number)}, bytes {row.start} to {row.end}: {row.reason}"
        for row in report.damage
    ]
    if report.is_rebuilt:
        found.append("there is no usable checkpoint: messages that were acked may be there again")
    if report.index_damage:
        found.append(f"{report.index_damage} stretches of index segments are damaged")
    if report.missing_contents:
        found.append(f"{report.missing_contents} messages in the journal have no content any more")
    return found


def _alive(snapshot: VhostSnapshot, queue_id: int) -> int:
    """How many messages a queue, or a staging log, has in its index and in the journal."""
    queue = snapshot.queue(queue_id)
    if queue is None:
        return 0
    indexed = sum(int(segment.live_persistent) for segment in snapshot.segments(queue))
    return indexed + len(queue.positions)
