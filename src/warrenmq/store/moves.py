"""Staged messages that were published, as the journal sees them.

A message that was staged (`broker/vhost/staging.py`) has a record of its own kind (MOVE) when it is published: from then on a
start settles it where it was staged instead of publishing it once more. It is settled there, by an ordinary ack, when the
batch of its MOVE is durable. Until that ack is sealed, too, the file with the MOVE stays (`JournalFile.pins`): it may be
all that says where the message is. A message has a MOVE whether or not any of its positions is durable.

A MOVE is never retracted. The one in a batch that failed may be on the disk, and a retraction of it whose own batch is
torn could leave the message nowhere. So it is written again with the next batch, with what is alive of its positions by
then, in the same places. Whichever of both a start finds, or both, the message is in its queues once.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.message import ABSENT, INDEXED, WRITTEN, JournalFile, MovedMessage, Position
from warrenmq.store.message_writer import MessageWriter
from warrenmq.store.record import RecordWriter
from warrenmq.store.runs import contains


class Move:
    """A message that was staged, and its positions in the queues it went to."""

    def __init__(self, message: MovedMessage, positions: list[Position]) -> None:
        self.message: MovedMessage = message
        self.positions: list[Position] = positions


class Moves:
    """The moves that a journal has to write."""

    def __init__(self) -> None:
        # Published since the last seal.
        self._messages: list[MovedMessage] = []
        # Of batches that failed.
        self._unwritten: list[Move] = []
        # For each that was settled where it was staged since the last seal, the file with its MOVE.
        self._settled: list[JournalFile] = []

    # -- what the broker says --------------------------------------------------------------------------------

    def add(self, message: MovedMessage) -> None:
        """A staged message was published, to queues that have given their positions to the journal, or to none."""
        self._messages.append(message)

    def settled(self, file: JournalFile) -> None:
        """A message with its MOVE in `file` was settled where it was staged."""
        self._settled.append(file)

    # -- what the journal says -------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Must the next batch write any?"""
        return len(self._messages) > 0 or len(self._unwritten) > 0

    def on_written(
        self, moves: list[Move], message: MovedMessage, positions: list[Position], file: JournalFile
    ) -> None:
        """Its MOVE is in the batch that is being sealed, which has `moves`."""
        file.pins += 1
        message.pinned = file
        moves.append(Move(message, positions))

    def write_rest(self, moves: list[Move], file: JournalFile, writer: RecordWriter) -> None:
        """Write the MOVEs of messages that no position was written for."""
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
        """Write those of failed batches, with what is alive of their positions."""
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
                        # What was loaded from the index, or purged there, is not settled by this position: its ack is in
                        # this batch, or an earlier one, and a publish behind it would bring the message back.
                        continue
                    indexed.append(position)
                if position.journal_state == INDEXED or position.journal_state == WRITTEN:
                    live.append(position)
            if len(live) == 0:
                self._write_bare(moves, message, live, file, writer)
                continue
            if len(indexed) == 0:
                stored_bytes = message_writer.write(message, live, 0, len(live))
            else:
                # Those hold no reference to a content that it would get now.
                stored_bytes = writer.add_publish(message, live, 0, len(live), message)
            for position in indexed:
                position.journal_state = INDEXED
            for position in live:
                if position.ledger.journal_file != file.number:
                    position.ledger.journal_file = file.number
                    file.ledgers.append(position.ledger)
            if len(live) > len(indexed):
                message.file = file
                message.stored_bytes = stored_bytes
                message.journal_refs = len(live) - len(indexed)
                file.live_bytes += stored_bytes
            self.on_written(moves, message, live, file)

    def on_sealed(self) -> None:
        """What was settled is in a batch that is sealed."""
        for file in self._settled:
            file.pins -= 1
        self._settled = []

    def take_back(self, moves: list[Move], file_number: i64) -> None:
        """Their batch, which was to be in that file, has failed.

        Their positions stay what they are, so that settling one of them writes an ack.
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
                    position.ledger.failed_upto = max(position.ledger.failed_upto, position.seq)
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
        # Nothing of it is alive, or was to be durable: what is left to say is that it was moved.
        writer.add_publish(ABSENT, nothing, 0, 0, message)
        self.on_written(moves, message, nothing, file)
