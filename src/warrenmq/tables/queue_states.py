"""The state of each queue in a store: its numbering, and how many messages it should have."""

from dataclasses import dataclass
from pathlib import Path

from warrenmq.offline.data_directory import DELAYED, files_of, level_names, opened
from warrenmq.store.disk.files import journal_path
from warrenmq.store.disk.snapshot import NoStore, VhostSnapshot
from warrenmq.store.disk.store_reader import StoreReport
from warrenmq.tables.planning import PlanError


@dataclass(frozen=True)
class QueueState:
    """The state of one queue, level of a priority queue, or bucket of delayed messages.

    `name` is that of the queue, or DELAYED. `messages` counts the messages that are alive in the
    index and the journal, readable or not. Messages at or below the seq id `delivered_upto` were
    delivered before.
    """

    name: bytes
    next_seq: int
    delivered_upto: int
    messages: int


@dataclass(frozen=True)
class VhostState:
    """The state of one vhost: its store and its defined queues.

    `queues` is by the id in the store, which levels and buckets have as well. `waiting` counts, by
    the name of a sink, the messages that the sink has committed and that are in no queue yet.
    `damage` describes losses of which the number of messages is not known.
    """

    id: int
    store_id: bytes
    queues: dict[int, QueueState]
    waiting: dict[bytes, int]
    damage: list[str]


def vhost_state(directory: Path, vhost: str) -> VhostState:
    """The state of a vhost in a data directory or a backup.

    Raises PlanError when there is no such vhost, and ToolError when nothing can be read.
    """
    with opened(directory) as data:
        for found in data.vhosts:
            definition = found.definition
            if definition is None or found.name != vhost:
                continue
            names = level_names(data.definitions, definition.name)
            for part in data.definitions.queue_parts:
                if part.vhost == definition.name and part.owner == 0:
                    names[part.id] = DELAYED
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
                    {int(id): _queue_state(int(id), name, snapshot) for id, name in names.items()},
                    waiting,
                    _damage(snapshot.report),
                )
    raise PlanError(f"{directory} has no vhost '{vhost}'")


def _queue_state(queue_id: int, name: bytes, snapshot: VhostSnapshot) -> QueueState:
    queue = snapshot.queue(queue_id)
    if queue is None:
        return QueueState(name, 1, 0, 0)
    log = queue.ledger
    alive = _alive(snapshot, queue_id)
    return QueueState(name, int(log.next_seq), int(log.delivered_upto), alive)


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
    """How many messages a queue, or a stage, has in its index and in the journal."""
    queue = snapshot.queue(queue_id)
    if queue is None:
        return 0
    indexed = sum(int(segment.live_persistent) for segment in snapshot.segments(queue))
    return indexed + len(queue.positions)
