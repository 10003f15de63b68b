"""Finds the state of each position in a piece of a segment or journal file: alive, settled, ..."""

from typing import Final

import numpy as np

from warrenmq.store.records.log_places import PLACES
from warrenmq.store.records.record import FLAG_TRANSIENT, PUBLISH, PUBLISH_REF
from warrenmq.tables.file_scan import Array, Piece
from warrenmq.tables.parts import FilePart, QueuePart, ReadOptions

ALIVE: Final = 0
SETTLED: Final = 1
# A position of the journal that has moved to the index; the index has its state.
MOVED: Final = 2
# A position to skip: a repetition, or one of another queue.
NOT_COUNTED: Final = 3
STATE_NAMES: Final = ("alive", "settled", "indexed")


class SegmentStates:
    """The states of the positions of one segment, piece by piece."""

    def __init__(self, part: FilePart) -> None:
        self._queue = part.queues[0]
        # Highest seq id so far. Seq ids of a segment ascend: a lower or equal one is a repetition.
        self._last_seq = -1

    def of(self, piece: Piece) -> Array:
        """One of the states for each position of the next piece."""
        positions = piece.positions
        records = piece.records_at(positions["record"])
        seqs = positions["seq"]
        is_ours = (positions["queue_id"] == self._queue.id) & (records["positions"] == 1)
        is_ours &= np.isin(records["kind"], (PUBLISH, PUBLISH_REF, PLACES))
        # Records behind the end of the index may be left from before a crash.
        is_ours &= seqs < self._queue.indexed_upto
        highest = np.maximum.accumulate(
            np.concatenate([[self._last_seq], np.where(is_ours, seqs, -1)])
        )
        is_ours &= seqs > highest[:-1]
        self._last_seq = int(highest[-1])
        states = np.where(is_in_runs(self._queue.seqs, seqs), SETTLED, ALIVE)
        # Transient messages in the files are from before a start, and a start drops them.
        states[(positions["flags"] & FLAG_TRANSIENT) != 0] = SETTLED
        states[records["in_transient_store"] != 0] = SETTLED
        states[~is_ours] = NOT_COUNTED
        return states


class JournalStates:
    """The states of the positions of one journal file, piece by piece.

    Positions that the index refers to are alive here, if the parts of the queues name them.
    """

    def __init__(self, part: FilePart) -> None:
        self._queues = {queue.id: queue for queue in part.queues}
        self._seen = {queue.id: np.zeros(len(queue.seqs), bool) for queue in part.queues}

    def of(self, piece: Piece) -> Array:
        """One of the states for each position of the next piece."""
        queue_ids, seqs = piece.positions["queue_id"], piece.positions["seq"]
        states = np.full(len(seqs), SETTLED)
        for queue_id in np.unique(queue_ids).tolist():
            queue = self._queues.get(queue_id)
            mine = np.flatnonzero(queue_ids == queue_id)
            if queue is None:
                states[mine] = NOT_COUNTED
                continue
            states[mine[seqs[mine] < queue.indexed_upto]] = MOVED
            if len(queue.referred):
                kinds = piece.records["kind"][piece.positions["record"][mine]]
                is_referred = is_in_runs(queue.referred, seqs[mine]) & (kinds == PUBLISH)
                states[mine[is_referred]] = ALIVE
            if len(queue.seqs) == 0:
                continue
            place = np.minimum(np.searchsorted(queue.seqs, seqs[mine]), len(queue.seqs) - 1)
            hits = np.flatnonzero(queue.seqs[place] == seqs[mine])
            # A position that was written twice counts as one message.
            place, first = np.unique(place[hits], return_index=True)
            hits = hits[first]
            is_new = ~self._seen[queue_id][place]
            self._seen[queue_id][place] = True
            states[mine[hits[is_new]]] = ALIVE
        return states


def is_in_runs(runs: Array, seqs: Array) -> Array:
    """Whether each of `seqs` is in one of the inclusive, ascending `runs`."""
    if len(runs) == 0:
        return np.zeros(len(seqs), bool)
    place = np.searchsorted(runs[:, 1], seqs)
    inside = place < len(runs)
    inside[inside] = runs[place[inside], 0] <= seqs[inside]
    return inside


def is_wanted(options: ReadOptions, seqs: Array, timestamps: Array) -> Array:
    """Whether the ranges of the options include each position."""
    return is_in_seqs(options, seqs) & is_in_time(options, timestamps)


def is_in_seqs(options: ReadOptions, seqs: Array) -> Array:
    """Whether the range of seq ids of the options includes each position."""
    wanted = np.ones(len(seqs), bool)
    if options.seq_from is not None:
        wanted &= seqs >= options.seq_from
    if options.seq_to is not None:
        wanted &= seqs < options.seq_to
    return wanted


def is_in_time(options: ReadOptions, timestamps: Array) -> Array:
    """Whether the time range of the options includes each position."""
    wanted = np.ones(len(timestamps), bool)
    if options.enqueued_from_ms is not None:
        wanted &= timestamps >= options.enqueued_from_ms
    if options.enqueued_to_ms is not None:
        wanted &= timestamps < options.enqueued_to_ms
    return wanted


def queue_places(queues: tuple[QueuePart, ...], queue_ids: Array) -> Array:
    """The place of each of `queue_ids` in `queues`, which must have all of them."""
    known = np.array([queue.id for queue in queues], np.int64)
    order = np.argsort(known)
    places: Array = order[np.searchsorted(known, queue_ids, sorter=order)]
    return places
