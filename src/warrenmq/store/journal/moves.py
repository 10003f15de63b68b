"""Moves: messages that were handed over from one queue to others, as the journal records them.

The original is a staged message (`broker/vhost/sinks/staging.py`), a dead letter or a delayed
message (`broker/vhost/handovers/handovers.py`). Its copy gets a record of its own kind (MOVE) when
it is published. A start that finds a MOVE settles the original instead of publishing it once more.
The broker settles the original by an ordinary ack, once the batch of the MOVE is durable. The file
with the MOVE stays until that ack is sealed too (`JournalFile.pins`): the MOVE may be the only
record of where the message is. A copy has a MOVE whether or not any of its positions is durable.

A MOVE is never retracted. The MOVE of a failed batch may be on the disk, and a retraction of it
whose own batch is torn could leave the message nowhere. The next batch therefore writes the MOVE
again, for those of its positions that are still alive, in the same places. Whether a start finds
the first MOVE, the second or both, the message is in its queues once.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.journal.message_writer import MessageWriter
from warrenmq.store.model.message import (
    ABSENT,
    INDEXED,
    WRITTEN,
    JournalFile,
    MovedMessage,
    Position,
)
from warrenmq.store.model.runs import contains
from warrenmq.store.records.record import RecordWriter


class Move:
    """The copy of a message that was handed over, and its positions in the queues that got it."""

    def __init__(self, message: MovedMessage, positions: list[Position]) -> None:
        self.message: MovedMessage = message
        self.positions: list[Position] = positions


class Moves:
    """The MOVEs that the journal of one vhost has to write."""

    def __init__(self) -> None:
        # Messages published since the last seal.
        self._messages: list[MovedMessage] = []
        # Moves of failed batches, to be written again.
        self._unwritten: list[Move] = []
        # The file with the MOVE of each message whose original was settled since the last seal.
        self._settled: list[JournalFile] = []

    # -- called by the broker ----------------------------------------------------------------------

    def add(self, message: MovedMessage) -> None:
        """Add the copy of a message that is handed over, published to queues or to none.

        The queues have appended their positions to the journal already.
        """
        self._messages.append(message)

    def settled(self, file: JournalFile) -> None:
        """Note that the original of a MOVE in `file` was settled."""
        self._settled.append(file)

    # -- called by the journal ---------------------------------------------------------------------

    def has_work(self) -> bool:
        """True while the next batch must write a MOVE."""
        return len(self._messages) > 0 or len(self._unwritten) > 0

    def has_unwritten(self) -> bool:
        """True while MOVEs of failed batches wait for the next seal.

        Positions of their messages may be in an index by then: a checkpoint of it must not become
        durable without the MOVE, or a start would publish the original once more.
        """
        return len(self._unwritten) > 0

    def on_written(
        self, moves: list[Move], message: MovedMessage, positions: list[Position], file: JournalFile
    ) -> None:
        """Add a message to `moves`, those of the batch being sealed; pin the `file` of its MOVE."""
        file.pins += 1
        message.pinned = file
        moves.append(Move(message, positions))

    def write_rest(self, moves: list[Move], file: JournalFile, writer: RecordWriter) -> None:
        """Write the MOVEs of messages for which no position was written."""
        messages = self._messages
        self._messages = []
        for message in messages:
            if message.pinned is None:
                self._write_bare(moves, message, [], file, writer)

    def write_again(
        self,
        moves: list[Move],
        file: JournalFile,
        writer: RecordWriter,
        message_writer: MessageWriter,
    ) -> None:
        """Write the moves of failed batches again, with the positions that are still alive."""
        unwritten = self._unwritten
        self._unwritten = []
        for move in unwritten:
            message = move.message
            live: list[Position] = []
            indexed: list[Position] = []
            for position in move.positions:
                if position.journal_state == INDEXED:
                    index = position.ledger.index
                    if index is not None and contains(index.settled, position.seq):
                        # A load makes another Position of the message and a purge makes none, so
                        # their settles leave this one INDEXED. The ack is in this batch or an
                        # earlier one, and a publish behind it would bring the message back.
                        continue
                    indexed.append(position)
                if position.journal_state == INDEXED or position.journal_state == WRITTEN:
                    live.append(position)
            if len(live) == 0:
                self._write_bare(moves, message, live, file, writer)
                continue
            offset = file.size_bytes + writer.size_bytes
            if len(indexed) == 0:
                stored_bytes = message_writer.write(message, live, 0, len(live))
            else:
                # An indexed position holds no reference to a content that this record would store,
                # so the record embeds the content.
                stored_bytes = writer.add_publish(message, live, 0, len(live), message)
            for position in indexed:
                position.journal_state = INDEXED
            for position in live:
                if position.ledger.journal_file != file.number:
                    position.ledger.journal_file = file.number
                    file.ledgers.append(position.ledger)
            if len(live) > len(indexed):
                message.file = file
                message.offset = offset
                message.stored_bytes = stored_bytes
                message.journal_refs = len(live) - len(indexed)
                file.live_bytes += stored_bytes
            self.on_written(moves, message, live, file)

    def on_sealed(self) -> None:
        """Unpin the files of settled originals: their acks are in a batch that is sealed."""
        for file in self._settled:
            file.pins -= 1
        self._settled = []

    def take_back(self, moves: list[Move], file_number: i64) -> None:
        """Take back the moves of a failed batch whose records were meant for file `file_number`.

        Their positions keep their state, so that settling one of them writes an ack.
        """
        for move in moves:
            message = move.message
            pinned = message.pinned
            if pinned is not None:
                pinned.pins -= 1
                message.pinned = None
            file = message.file
            if file is not None and file.number == file_number:
                file.live_bytes -= message.stored_bytes
                message.file = None
            message.content_ref = None
            for position in move.positions:
                if position.journal_state == INDEXED:
                    failed = position.ledger.failed
                    failed.indexed_upto = max(failed.indexed_upto, position.seq)
                else:
                    position.content_ref = None
            self._unwritten.append(move)

    def _write_bare(
        self,
        moves: list[Move],
        message: MovedMessage,
        nothing: list[Position],
        file: JournalFile,
        writer: RecordWriter,
    ) -> None:
        # No position is alive, or none was to be durable: the record says only that the message was
        # moved.
        writer.add_publish(ABSENT, nothing, 0, 0, message)
        self.on_written(moves, message, nothing, file)
