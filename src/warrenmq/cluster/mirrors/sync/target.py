"""The mirror's side of a synchronisation: offers what it has, takes what it misses.

    IDLE --begin--> OFFERED --ANSWER--> TAKING --DONE--> COMPLETE --durable--> IN_SYNC

Operations of the ring are applied all the while, by the owner. Chunks are acknowledged when they
are on disk, so the master sends no faster than the disk writes, and an interrupted synchronisation
keeps what arrived (F7): the next offer has it. A pass ends with DONE. The copy may lack messages
then that came over the ring and were more than it could keep beside the pass
(`queues/mirror/backing.py`); another pass begins at once.

The mirror hears from its master every few seconds. When it does not, it offers anew (F16).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from warrenmq.cluster.mirrors.records import MalformedMirrorRecord, SyncRecord
from warrenmq.cluster.mirrors.sync import records
from warrenmq.cluster.mirrors.sync.scan import Pieces
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.durable_marks import DurableMarks
from warrenmq.queues.mirror.sliced_work import SLICE_STEPS, SlicedWork
from warrenmq.queues.mirror.snapshot import LevelCopy, describe_copy
from warrenmq.queues.remote.link_records import MalformedRecordError

# The mirror offers anew when it has not heard from its master for this time (ms).
SILENT_MS: Final = 10_000
# The mirror offers again this long (ms) after the master has ended an attempt.
RETRY_MS: Final = 1_000

# Runs of messages that the master has no more, which are dropped in one turn.
SETTLED_RUNS: Final = 128

IDLE: Final = 0
OFFERED: Final = 1
TAKING: Final = 2
COMPLETE: Final = 3
IN_SYNC: Final = 4


class TargetHost:
    """The replica of a mirror that is synchronised."""

    def report(self, record: SyncRecord) -> None:
        """Send a record to the master."""
        raise RuntimeError("abstract")

    def begin_anew(self) -> None:
        """Replace the copy by an empty one, with a target of its own; this one is over."""
        raise RuntimeError("abstract")


class SyncTarget:
    """Synchronises the copy of `applier`; `marks` say what of the ring is durable.

    A target lives as long as the mirror stays in the ring: if it missed an operation, the copy has
    to be reopened, with a new applier and a new target.
    """

    def __init__(
        self, applier: MirrorApplier, marks: DurableMarks, host: TargetHost, attempt: int = 0
    ) -> None:
        self.state: int = IDLE
        # The attempt that is under way, or was last; at first that of an earlier target, so that
        # no record for that one is taken for one of this one.
        self.attempt: int = attempt
        # Messages left and sent, as the master said last.
        self.left_count: int = 0
        self.sent_count: int = 0
        self._applier: MirrorApplier = applier
        self._marks: DurableMarks = marks
        self._host: TargetHost = host
        # The epoch of the master, and the number of the last chunk.
        self._epoch: int = 0
        self._chunk_number: int = 0
        self._pieces: Pieces = Pieces()
        # The mirror is dropping messages that the master does not have any more.
        self._is_settling: bool = False
        # (priority, next seq id) of each level of the master: the end of this pass.
        self._upto: list[tuple[int, int]] = []
        # The ring message up to which the mirror has to be durable; -1: the master has not said.
        self._ring_number: int = -1
        # When the mirror heard of its master last, or when it is to offer anew.
        self._heard_ms: int = 0
        self._retry_ms: int = -1

    # -- begin and end -----------------------------------------------------------------------------

    def begin(self, epoch: int, now_ms: int) -> None:
        """Join the master of `epoch`, and offer it the copy; also when the link is up again.

        Every operation of the ring from now on must be applied. Raises StaleEpochError.
        """
        if self.state == IN_SYNC and epoch == self._epoch:
            return
        self._applier.begin_sync(epoch, now_ms)
        self._marks.pause()
        self._epoch = epoch
        self._offer(now_ms)

    def stop(self) -> None:
        """Forget the attempt: the link is down, or another node becomes the master."""
        self.state = IDLE
        self._retry_ms = -1

    def _offer(self, now_ms: int) -> None:
        # A number that rises with time is also higher than those from before a restart.
        self.attempt = max(self.attempt + 1, now_ms)
        self._chunk_number = 0
        self._ring_number = -1
        self._is_settling = False
        self._pieces.forget()
        self._heard_ms = now_ms
        self._retry_ms = -1
        self.state = OFFERED
        attempt = self.attempt

        def on_described(copies: list[LevelCopy]) -> None:
            if self.attempt == attempt and self.state == OFFERED:
                self._send_offer(copies)

        describe_copy(self._applier.queue, on_described)

    def _send_offer(self, copies: list[LevelCopy]) -> None:
        queue = self._applier.queue
        known = {
            int(queue.level_of(level.backing.ledger)): int(level.held_from)
            for level in self._applier.levels()
        }
        levels = [
            records.LevelRuns(
                int(copy.level), int(copy.next_seq), known.get(int(copy.level), 0), copy.runs
            )
            for copy in copies
        ]
        for record in records.encode_levels(
            records.OFFER, self.attempt, int(self._applier.epoch), levels
        ):
            self._host.report(record)

    # -- what the master sends ---------------------------------------------------------------------

    def take(self, step: records.SyncStep, now_ms: int) -> None:
        """Take a record of the master. Raises MalformedMirrorRecord."""
        if isinstance(step, records.Levels) and step.kind != records.ANSWER:
            raise MalformedMirrorRecord("a master makes no offers")
        if isinstance(step, records.Note) and step.kind in (records.TAKEN, records.SYNCED):
            raise MalformedMirrorRecord("a master sends no records of a mirror")
        if step.attempt != self.attempt or self.state in (IDLE, IN_SYNC):
            return
        self._heard_ms = now_ms
        try:
            if isinstance(step, records.Levels):
                self._take_answer(step, now_ms)
            elif isinstance(step, records.Chunk):
                self._take_chunk(step, now_ms)
            else:
                self._take_note(step, now_ms)
        except MalformedRecordError as error:
            raise MalformedMirrorRecord(str(error)) from error

    def _take_answer(self, answer: records.Levels, now_ms: int) -> None:
        if self.state != OFFERED:
            raise MalformedMirrorRecord("an answer comes twice")
        if answer.epoch != self._epoch:
            raise MalformedMirrorRecord(
                f"the master of epoch {answer.epoch} answers in epoch {self._epoch}"
            )
        if answer.is_anew:
            self.stop()
            self._host.begin_anew()
            return
        levels = self._pieces.take(answer)
        if levels is None:
            return
        self._upto = [(level.level, level.next_seq) for level in levels]
        self.state = TAKING
        self._is_settling = True
        host = self._applier.queue.backing.host
        SlicedWork(host, self._settle(self.attempt, levels, now_ms)).start()

    def _settle(self, attempt: int, levels: list[records.LevelRuns], now_ms: int) -> Iterator[int]:
        """Drop what the master has no more, beside the chunks, which bring what comes later."""
        for level in levels:
            for place in range(0, len(level.runs), SETTLED_RUNS):
                if attempt != self.attempt or self.state != TAKING:
                    return
                runs = level.runs[place : place + SETTLED_RUNS]
                self._applier.settle(level.level, runs, now_ms)
                yield SLICE_STEPS * len(runs) // SETTLED_RUNS + 1
        if attempt != self.attempt or self.state != TAKING:
            return
        self._is_settling = False
        if self._ring_number >= 0:
            self._end_pass(self._heard_ms)

    def _take_chunk(self, chunk: records.Chunk, now_ms: int) -> None:
        if self.state != TAKING or chunk.number != self._chunk_number + 1:
            raise MalformedMirrorRecord(f"chunk {chunk.number} follows {self._chunk_number}")
        self._chunk_number = chunk.number
        applier = self._applier
        for one in chunk.messages:
            applier.fill(
                chunk.level, one.seq, one.message, one.expiry_ms, one.is_redelivered, now_ms
            )
        attempt = self.attempt

        def on_durable(ok: bool, done_ms: int) -> None:
            if attempt != self.attempt or self.state not in (TAKING, COMPLETE):
                return
            if ok:
                self._host.report(records.encode_note(records.TAKEN, attempt, chunk.number))
            else:
                # `marks` let the mirror begin anew.
                self._host.report(records.encode_cancel(attempt, records.REFUSED))
                self.stop()

        self._marks.watch()
        applier.queue.backing.store.journal.when_durable(on_durable)

    def _take_note(self, note: records.Note, now_ms: int) -> None:
        if note.kind == records.PROGRESS:
            self.left_count = note.first
            self.sent_count = note.second
        elif note.kind == records.CANCEL:
            self.stop()
            if note.first != records.GONE:
                self._retry_ms = now_ms + RETRY_MS
        elif note.kind == records.DONE:
            if self.state != TAKING:
                raise MalformedMirrorRecord("a synchronisation is done that has not begun")
            self._ring_number = note.first
            if not self._is_settling:
                self._end_pass(now_ms)

    def _end_pass(self, now_ms: int) -> None:
        if not self._applier.end_sync(self._upto, now_ms):
            self._applier.begin_sync(self._epoch, now_ms)
            self._offer(now_ms)
            return
        self.state = COMPLETE
        self._marks.resume()
        self.advance(now_ms)

    # -- turns -------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Report that the copy is in sync once it is durable; offer anew after a silence.

        Called once a turn, and every second or so.
        """
        if self.state == COMPLETE and self._marks.durable_upto >= self._ring_number:
            self.state = IN_SYNC
            self._host.report(records.encode_note(records.SYNCED, self.attempt))
        elif self.state == IDLE:
            if 0 <= self._retry_ms <= now_ms:
                self.begin(self._epoch, now_ms)
        elif self.state != IN_SYNC and now_ms - self._heard_ms >= SILENT_MS:
            self.begin(self._epoch, now_ms)
