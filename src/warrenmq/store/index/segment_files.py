"""The segment files of a vhost's queues, and the files of its transient content store.

Appends run in order; loads read. An append whose file was deleted or cut off from outside stays in
the lane until `SegmentLoss` has put a file in its place.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.store.contents.stored_contents import StoredContents
from warrenmq.store.index.checkpoint_needs import CheckpointNeeds
from warrenmq.store.index.losses import Losses
from warrenmq.store.index.pieces import IndexPieces
from warrenmq.store.index.repair import DamagedSegments
from warrenmq.store.index.waiting_loads import Loads, WaitingLoad
from warrenmq.store.jobs.job import AppendFile
from warrenmq.store.jobs.job_queue import JobQueue
from warrenmq.store.model.content_log import ContentLogs
from warrenmq.store.model.layout import QUEUES_NAME, TRANSIENT_NAME
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.records.log_places import PlacesWriter
from warrenmq.store.records.record import RecordWriter
from warrenmq.store.settings import StoreSettings


class Append(AppendFile):
    """An append to a segment, or to the transient content store."""

    def __init__(
        self,
        files: SegmentFiles,
        ledger: QueueLedger | None,
        segment: Segment | None,
        path: str,
        offset: i64,
        parts: list[bytes],
        is_new: bool,
    ) -> None:
        super().__init__(path, offset, parts, is_new)
        self.files: SegmentFiles = files
        self.ledger: QueueLedger | None = ledger
        self.segment: Segment | None = segment
        # Contents of the transient store below this id are written once the append is done.
        self.content_upto: i64 = 0

    def join(self, following: AppendFile) -> bool:
        if not isinstance(following, Append) or following.segment is not self.segment:
            return False
        if not super().join(following):
            return False
        self.content_upto = following.content_upto
        return True

    def finished(self) -> None:
        self.files.on_append(self)


class SegmentFiles:
    """The segment files of one vhost, with what appends and loads of them need."""

    def __init__(
        self, store_id: bytes, settings: StoreSettings, jobs: JobQueue, contents: StoredContents
    ) -> None:
        self.store_id: bytes = store_id
        self.settings: StoreSettings = settings
        self.jobs: JobQueue = jobs
        self.contents: StoredContents = contents
        self.losses: Losses = Losses()
        self.loads: Loads = Loads()
        self.logs: ContentLogs = ContentLogs()
        self.needs: CheckpointNeeds = CheckpointNeeds(settings.dead_bytes, self.logs)
        self.damaged: DamagedSegments = DamagedSegments(
            store_id, jobs, self.needs, self.losses, self.loads
        )
        self.writer: RecordWriter = RecordWriter(store_id)
        self.places: PlacesWriter = PlacesWriter()
        self.pieces: IndexPieces = IndexPieces()
        # Replaces the file of a failed append: it was deleted or cut off. The lane is at rest then.
        self.replace_gone: Callable[[Append], None] | None = None
        # Failed appends whose file is gone; replaced when the lane is at rest.
        self._gone: list[Append] = []

    @property
    def is_behind(self) -> bool:
        """Whether more bytes wait than the disk can be expected to write soon."""
        return self.jobs.lane.waiting_bytes > self.settings.behind_bytes

    def new_index(self, queue_id: i64, is_durable: bool) -> QueueIndex:
        """A new index without segments for queue `queue_id`."""
        path = (
            f"{QUEUES_NAME}/{queue_id}"
            if is_durable
            else f"{TRANSIENT_NAME}/{QUEUES_NAME}/{queue_id}"
        )
        return QueueIndex(
            queue_id, path, self.settings.segment_entries, self.settings.rewrite_min_bytes
        )

    def append(
        self, ledger: QueueLedger, segment: Segment, path: str, parts: list[bytes], is_new: bool
    ) -> None:
        """Append `parts` to a segment, behind all earlier appends."""
        self.jobs.lane.push(Append(self, ledger, segment, path, segment.size_bytes, parts, is_new))

    def write_transient(self) -> None:
        """Append all contents that the transient content store has gathered."""
        transient = self.contents.transient
        for write in transient.take_writes():
            job = Append(self, None, None, write.path, write.offset, write.parts, write.is_new)
            job.content_upto = transient.next_id
            self.jobs.lane.push(job)

    def on_append(self, job: Append) -> None:
        """Account for an append that is done or has failed."""
        lane = self.jobs.lane
        if job.is_gone:
            self._gone.append(job)
        for done in lane.on_append(job, self.jobs.now_ms):
            if isinstance(done, Append):
                segment = done.segment
                if segment is not None:
                    segment.written_bytes += done.size_bytes
                    segment.left_bytes = -1
                else:
                    self.contents.transient_written_upto = done.content_upto
        if len(self._gone) > 0 and lane.is_at_rest() and self.replace_gone is not None:
            gone = self._gone
            self._gone = []
            for append in gone:
                self.replace_gone(append)
        self.resume_loads()

    def wait_for_append(self, load: WaitingLoad) -> None:
        """Resume `load` when more has been written."""
        self.loads.wait(load)
        self.jobs.lane.hurry()

    def retry_load(self, load: WaitingLoad, failures: i64) -> None:
        """Retry `load` after a pause that grows with the `failures` before."""
        self.loads.retry(load, failures, self.jobs.now_ms)

    def resume_loads(self) -> None:
        """Resume the waiting loads, since more may be readable; recount damaged segments first."""
        self.damaged.recount()
        self.loads.resume_waiting()
