"""A batch of the journal: everything that one group commit makes durable (`journal.py`)."""

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.store.contents.store import ContentWrite
from warrenmq.store.journal.change_sets import ChangeSet
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.store.journal.moves import Move
from warrenmq.store.model.message import JournalFile, Position, QueueLedger
from warrenmq.store.model.runs import Runs
from warrenmq.store.records.content import Release


class FlushFindings:
    """The flusher's report on the journal files of a batch, whether it succeeds or fails."""

    def __init__(self) -> None:
        # The batch's file was made.
        self.created_file: bool = False
        # Someone has deleted the batch's file, with everything in it.
        self.is_file_gone: bool = False
        # Numbers of the batch's `delete_files` whose files could not be deleted.
        self.undeleted: list[int] = []


class Batch(ConfirmParty):
    """Everything that one group commit makes durable, and the callbacks and confirms that wait."""

    def __init__(self, number: i64) -> None:
        super().__init__()
        self.number: i64 = number
        self.positions: list[Position] = []
        # Number of positions that were settled before the seal, so that they are not written.
        self.settled_count: i64 = 0
        self.callbacks: list[Callable[[bool, int], None]] = []
        # Changes of definitions in this batch, in order; stored before the journal bytes are
        # written.
        self.change_sets: list[ChangeSet] = []
        # Acks in this batch that release no content, by queue.
        self.acks: list[tuple[QueueLedger, Runs]] = []
        # Retractions of earlier batches' publishes in this batch, by queue.
        self.retractions: list[tuple[QueueLedger, Runs]] = []
        # Acks in this batch that release references to contents.
        self.releases: list[Release] = []
        # Staged messages that were published, with their positions, which are not in `positions`.
        self.moves: list[Move] = []
        # Starts of epochs: (queue id, epoch, first seq id).
        self.epochs: list[tuple[i64, i64, i64]] = []
        # Contents of large messages, made durable before the journal bytes.
        self.content_writes: list[ContentWrite] = []
        # All contents below this id are written once the batch is durable.
        self.content_upto: i64 = 0
        # Encoded records for the flusher to write.
        self.parts: list[bytes] = []
        self.part_bytes: i64 = 0
        # The journal file to which `parts` are appended; None: there are no parts.
        self.file: JournalFile | None = None
        # Bytes of `file`, with `parts`.
        self.file_end: i64 = 0
        # The flusher must make `file`; `parts` begin with its header.
        self.starts_file: bool = False
        # Numbers of journal files that the flusher deletes after writing.
        self.delete_files: list[int] = []
        # The flusher's report on the batch's journal files.
        self.found: FlushFindings = FlushFindings()

    @property
    def file_number(self) -> i64:
        """Number of `file`; 0: there is none."""
        file = self.file
        return file.number if file is not None else 0

    def has_work(self) -> bool:
        """True when the flusher must run; False when there is nothing to make durable."""
        return (
            len(self.parts) > 0
            or len(self.change_sets) > 0
            or len(self.delete_files) > 0
            or len(self.content_writes) > 0
        )
