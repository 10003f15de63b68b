"""Contents of large messages, by id, in a sequence of files that are only appended to (S25-S38).

Engine side, without I/O. A vhost has two stores: `msg_store_persistent`, which survives a restart,
and `msg_store_transient`, which starts empty. A content is written once however many queues its
message went to (S37), and is garbage when its last reference is released. `take_writes` hands out
the contents that were added; the caller reports each write back with `on_written`.

Which content is where. Ids are given out in the order of writing, so the files, in order of their
first id, hold disjoint ascending ranges of ids, and a search over the list of files finds the file
of an id. Memory holds nothing for each content but what `file.py` describes. A ContentRef
knows the offset in a file; after a compaction the offset is stale and the file is searched.

Files that go. A file leaves the table when nothing in it is valid (S33), unless it is being written
or has writes under way. `take_dead_paths` hands it out, and it is deleted once there is a
checkpoint without it: until then a crash finds the file again, and a reader that uses an old
location still gets its content. Readers therefore never wait (W9).

Compaction (S34, S35, W10). When more than half of all bytes are garbage, two neighbours whose valid
contents fit into one file are copied to a new one, which takes their place in the list; the pair
with most garbage goes first. Where no pair fits, a file that is more than half garbage is copied
alone: such a file always exists. The garbage therefore stays below the valid bytes plus a few
files, whatever the pattern of releases (G8). Releases continue while the copy is made; the new file
takes over the counts of the old ones when the copy is complete. A copy that failed has changed
nothing.

An operator may want the garbage gone earlier (`want_compaction`). Each file that is more than
WANTED_GARBAGE_PERCENT garbage at that moment is then copied once, in the same order, one copy at a
time.

A failed write closes its file (W27): the contents of the write are garbage, and the next content
starts a file.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from warrenmq.store.contents.file import GONE, WAS_GONE, WAS_LAST, ContentFile, index_of
from warrenmq.store.jobs.job import CompactContents
from warrenmq.store.model.message import ContentRef, Message, Position
from warrenmq.store.records.content import REFERENCES_MAX, write_content
from warrenmq.store.records.record import CONTENT_MAGIC, FILE_HEADER_BYTES, RecordWriter

FILE_SIZE_LIMIT: Final = 16777216
# Number of files from which compaction begins (S34).
COMPACTION_FILES_MIN: Final = 3
# Share of garbage above which a file is copied: when much of the store is garbage, and on demand.
_GARBAGE_PERCENT: Final = 50
WANTED_GARBAGE_PERCENT: Final = 5


class ContentWrite:
    """Bytes to write at `offset` of the file `path`, and the contents they hold.

    `is_new`: the file must be made first.
    """

    def __init__(self, file: ContentFile, offset: i64, is_new: bool) -> None:
        self.path: str = file.path
        self.file_number: i64 = file.number
        self.offset: i64 = offset
        self.parts: list[bytes] = []
        self.size_bytes: i64 = 0
        self.is_new: bool = is_new
        self.contents: list[ContentRef] = []


class Compaction(CompactContents):
    """A running copy of one file, or of two neighbouring files, of a store."""

    def __init__(
        self,
        store: ContentStore,
        sources: list[ContentFile],
        target: ContentFile,
        is_asked: bool,
    ) -> None:
        live_ids: list[i64] = []
        for source in sources:
            live_ids.extend(source.live_ids())
        super().__init__([source.path for source in sources], target.path, target.number, live_ids)
        self.store: ContentStore = store
        self.sources: list[ContentFile] = sources
        self.target: ContentFile = target
        # The files have too little garbage to be due, but somebody has asked for them.
        self.is_asked: bool = is_asked

    def finished(self) -> None:
        """See StoreJob."""
        self.store.on_compacted(self)


class ContentStore:
    """One content store. Sizes in bytes; paths relative to the vhost's directory."""

    def __init__(
        self,
        store_id: bytes,
        directory_name: str,
        is_transient: bool,
        file_size_limit: i64 = FILE_SIZE_LIMIT,
    ) -> None:
        self.store_id: bytes = store_id
        self.directory_name: str = directory_name
        self.is_transient: bool = is_transient
        self.file_size_limit: i64 = file_size_limit
        # The table of files, in order of their ids.
        self.files: list[ContentFile] = []
        self.next_id: i64 = 1
        self.next_file_number: i64 = 0
        self.total_bytes: i64 = 0
        self.valid_bytes: i64 = 0
        # Releases of contents that are not in the store, or that have no references left.
        self.unknown_releases: i64 = 0
        # The compaction that is under way.
        self.compaction: Compaction | None = None
        self.compactions: i64 = 0
        # Files with lower numbers are copied on demand; 0: nobody has asked.
        self._wanted_below: i64 = 0
        # Bytes of the files that compactions have written since the start.
        self.compacted_bytes: i64 = 0
        # Failed compactions since the last success: the caller pauses when the number rises.
        self.failed_compactions: i64 = 0
        # Bytes of the files that `take_dead_paths` will return, as far as their size is known.
        self.dead_bytes: i64 = 0
        self._written_upto: i64 = 1
        self._current: ContentFile | None = None
        self._gathering: ContentWrite | None = None
        self._writes: list[ContentWrite] = []
        self._writer: RecordWriter = RecordWriter(store_id)
        # File of the last id that was looked up: ids are mostly asked for in order.
        self._last_used: ContentFile | None = None
        self._dead_paths: list[str] = []
        self._damaged: list[i64] = []

    # -- writing -----------------------------------------------------------------------------------

    def add(self, message: Message, positions: list[Position], first: i64, last: i64) -> ContentRef:
        """Store the content of `message`, with one reference for each of `positions[first:last]`.

        There are at most REFERENCES_MAX positions; for more, the caller stores the content again.
        Sets `message.content_ref`.
        """
        references = last - first
        assert references > 0 and references <= REFERENCES_MAX
        file = self._current
        # A content larger than the limit of a file gets a file of its own.
        if (
            file is None
            or file.size_bytes >= self.file_size_limit
            or (file.count > 0 and message.content_bytes > self.file_size_limit)
        ):
            file = self._start_file()
        write = self._gathering
        if write is None:
            write = self._start_write(file, False)
        stored_bytes = write_content(self._writer, self.next_id, message, positions, first, last)
        content = ContentRef(
            self.next_id, file.number, file.size_bytes, stored_bytes, references, self.is_transient
        )
        self.next_id += 1
        file.append(stored_bytes)
        self.total_bytes += stored_bytes
        self.valid_bytes += stored_bytes
        write.contents.append(content)
        message.content_ref = content
        return content

    def take_writes(self) -> list[ContentWrite]:
        """Writes of all contents added since the last call, in order; report with `on_written`."""
        self._close_write()
        writes = self._writes
        self._writes = []
        return writes

    def on_written(self, writes: list[ContentWrite], ok: bool) -> None:
        """Account for `writes`, in the order of `take_writes`: all are done, or all have failed."""
        for write in writes:
            file = self._file_of(write)
            file.writes_under_way -= 1
            self._written_upto = write.contents[-1].id + 1
            if not ok:
                self._discard_write(file, write)
            self._drop_if_dead(file)

    def is_written(self, content_id: i64) -> bool:
        """True when the write that holds this content has come back, successful or not."""
        return content_id < self._written_upto

    def _start_file(self) -> ContentFile:
        self._close_write()
        before = self._current
        number = self.next_file_number
        self.next_file_number += 1
        file = ContentFile(number, self.path_of(number), self.next_id)
        self.files.append(file)
        self.total_bytes += FILE_HEADER_BYTES
        self._current = file
        if before is not None:
            self._drop_if_dead(before)
        self._start_write(file, True)
        return file

    def _start_write(self, file: ContentFile, is_new: bool) -> ContentWrite:
        write = ContentWrite(file, 0 if is_new else file.size_bytes, is_new)
        if is_new:
            self._writer.start_file(CONTENT_MAGIC, file.number)
        else:
            self._writer.continue_file(file.number)
        file.writes_under_way += 1
        self._gathering = write
        return write

    def _close_write(self) -> None:
        write = self._gathering
        if write is not None:
            write.size_bytes = self._writer.size_bytes
            write.parts = self._writer.take()
            self._writes.append(write)
            self._gathering = None

    def _discard_write(self, file: ContentFile, write: ContentWrite) -> None:
        # The bytes of the file behind the failure are unknown (W27): nothing more is written to it.
        if self._current is file:
            self._current = None
        for content in write.contents:
            place = file.place_of(content.id)
            if file.released_at(place) != GONE:
                file.set_released(place, GONE)
                file.valid_bytes -= content.stored_bytes
                self.valid_bytes -= content.stored_bytes

    def _file_of(self, write: ContentWrite) -> ContentFile:
        # An open write keeps the file in the table; the last one to finish removes it.
        file = self._find(write.contents[0].id)
        assert file is not None and file.number == write.file_number
        return file

    # -- references --------------------------------------------------------------------------------

    def release(self, content_id: i64, references: i64, stored_bytes: i64) -> None:
        """Release one of the `references` of a content whose record has `stored_bytes`."""
        file = self._find(content_id)
        place: i64 = file.place_of(content_id) if file is not None else -1
        if file is None or place < 0:
            self.unknown_releases += 1
            return
        outcome = file.release(place, references, stored_bytes)
        if outcome == WAS_LAST:
            self.valid_bytes -= stored_bytes
            if file.valid_bytes == 0:
                self._drop_if_dead(file)
        elif outcome == WAS_GONE:
            self.unknown_releases += 1

    def locate(self, content_id: i64) -> tuple[str, i64] | None:
        """(path, number) of the file that holds a content, or None: the store does not have it."""
        file = self._find(content_id)
        if file is None or file.place_of(content_id) < 0:
            return None
        return file.path, file.number

    def is_current_location(self, content: ContentRef) -> bool:
        """True while the content is in the file, and thus at the offset, that `content` names."""
        file = self._find(content.id)
        return file is not None and file.number == content.file

    def is_closed(self, file: ContentFile) -> bool:
        """True when nothing will be written to `file` any more."""
        return file is not self._current and file.writes_under_way == 0

    def path_of(self, number: i64) -> str:
        """Path of file `number`, relative to the vhost's directory."""
        return f"{self.directory_name}/{number}.rdq"

    def _find(self, content_id: i64) -> ContentFile | None:
        """The file whose range of ids contains `content_id`, or None."""
        file = self._last_used
        if file is not None and content_id >= file.first_id and content_id < file.end_id:
            return file
        index = index_of(self.files, content_id)
        if index < 0:
            return None
        file = self.files[index]
        if content_id >= file.end_id:
            return None
        self._last_used = file
        return file

    # -- files that go -----------------------------------------------------------------------------

    def take_dead_paths(self) -> list[str]:
        """Paths of files that left the table since the last call, for deletion.

        Delete them after the next checkpoint.
        """
        paths = self._dead_paths
        self._dead_paths = []
        self.dead_bytes = 0
        return paths

    def _drop_if_dead(self, file: ContentFile) -> None:
        if (
            file.valid_bytes > 0
            or file.writes_under_way > 0
            or file.is_compacting
            or file is self._current
        ):
            return
        index = index_of(self.files, file.first_id)
        assert self.files[index] is file
        self.files.pop(index)
        self._retire(file)

    def _retire(self, file: ContentFile) -> None:
        self._last_used = None
        self.total_bytes -= file.size_bytes
        self._dead_paths.append(file.path)
        self.dead_bytes += file.size_bytes

    # -- accounts ----------------------------------------------------------------------------------

    @property
    def file_count(self) -> i64:
        """Number of files in the table."""
        return len(self.files)

    @property
    def garbage_bytes(self) -> i64:
        """Bytes that no content with references left needs."""
        return self.total_bytes - self.valid_bytes

    # -- compaction --------------------------------------------------------------------------------

    def pick_compaction(self) -> CompactContents | None:
        """The copy to make next, or None: nothing to gain, or one is under way.

        The caller gives it to the job runner; `Compaction.finished` brings it back.
        """
        if self.compaction is not None:
            return None
        is_due = (
            len(self.files) >= COMPACTION_FILES_MIN
            and self.garbage_bytes * 100 > _GARBAGE_PERCENT * self.total_bytes
        )
        if not is_due and not self.is_wanted:
            return None
        sources: list[ContentFile] = []
        if is_due:
            sources = self._best_sources(self.next_file_number, _GARBAGE_PERCENT, 0)
        is_asked = len(sources) == 0
        if is_asked and self.is_wanted:
            percent = WANTED_GARBAGE_PERCENT
            sources = self._best_sources(self._wanted_below, percent, percent)
        if len(sources) == 0:
            self._wanted_below = 0
            # Files whose compaction failed get another try next time.
            for file in self.files:
                file.was_refused = False
            return None
        number = self.next_file_number
        self.next_file_number += 1
        for file in sources:
            file.is_compacting = True
        target = ContentFile(number, self.path_of(number), sources[0].first_id)
        compaction = Compaction(self, sources, target, is_asked)
        self.compaction = compaction
        return compaction

    def want_compaction(self) -> None:
        """Have `pick_compaction` pick all files in turn that are worth a copy at this moment."""
        self._wanted_below = self.next_file_number
        for file in self.files:
            file.was_refused = False

    @property
    def is_wanted(self) -> bool:
        """Whether a compaction on demand is not over yet."""
        return self._wanted_below > 0

    def wanted_files(self) -> list[ContentFile]:
        """The files that the compaction on demand still has to copy, or copies now."""
        return [
            file
            for file in self.files
            if file.number < self._wanted_below
            and self._is_free(file)
            and _has_garbage(file, WANTED_GARBAGE_PERCENT)
        ]

    def on_compacted(self, job: Compaction) -> None:
        """Take over the result of `job`, which has run or failed."""
        self.compaction = None
        for file in job.sources:
            file.is_compacting = False
        if job.error is not None:
            self.failed_compactions += 1
            self._dead_paths.append(job.target_path)
            for file in job.sources:
                file.was_refused = True
                self._drop_if_dead(file)
            return
        self.failed_compactions = 0
        self.compactions += 1
        self._fill_target(job)
        self.compacted_bytes += job.target.size_bytes
        self._replace(job.sources, job.target)

    def take_damaged(self) -> list[i64]:
        """Ids of contents lost since the last call, because compaction could not read them."""
        damaged = self._damaged
        self._damaged = []
        return damaged

    def _best_sources(self, below: i64, percent: i64, pair_percent: i64) -> list[ContentFile]:
        """The pair with most garbage that fits into one file, or the single file with most.

        A pair fits when the valid contents of both files do. Only files with numbers lower than
        `below` count; more than `percent` of a single file must be garbage, and more than
        `pair_percent` of a pair.
        """
        files = self.files
        pair: i64 = -1
        pair_garbage: i64 = 0
        single: i64 = -1
        single_garbage: i64 = 0
        before_is_free = False
        index: i64 = 0
        while index < len(files):
            file = files[index]
            garbage = file.size_bytes - file.valid_bytes
            is_free = file.number < below and self._is_free(file)
            if is_free and garbage > single_garbage and _has_garbage(file, percent):
                single = index
                single_garbage = garbage
            if is_free and before_is_free:
                before = files[index - 1]
                both = garbage + before.size_bytes - before.valid_bytes
                fits = before.valid_bytes + file.valid_bytes <= self.file_size_limit
                is_worth_it = both * 100 > pair_percent * (before.size_bytes + file.size_bytes)
                if fits and is_worth_it and both > pair_garbage:
                    pair = index - 1
                    pair_garbage = both
            before_is_free = is_free
            index += 1
        if pair >= 0 and pair_garbage >= single_garbage:
            return files[pair : pair + 2]
        return [files[single]] if single >= 0 else []

    def _is_free(self, file: ContentFile) -> bool:
        return (
            file is not self._current
            and file.valid_bytes > 0
            and file.writes_under_way == 0
            and not file.was_refused
        )

    def _fill_target(self, job: Compaction) -> None:
        """Describe the new file: its contents, with the references they still have."""
        target = job.target
        copied = job.copied
        if len(copied) > 0:
            copied.sort()
            ids = BytesWriter()
            for content_id, _offset, _size in copied:
                write_i64_be(ids, content_id)
            target.set_ids(ids.getvalue())
        for place, (content_id, _offset, size) in enumerate(copied):
            target.size_bytes += size
            released = _released_in(job.sources, content_id)
            if released != 0:
                target.set_released(place, released)
            if released != GONE:
                target.valid_bytes += size
        for content_id in job.damaged:
            if _released_in(job.sources, content_id) != GONE:
                self._damaged.append(content_id)

    def _replace(self, sources: list[ContentFile], target: ContentFile) -> None:
        index = index_of(self.files, sources[0].first_id)
        assert (
            self.files[index] is sources[0] and self.files[index + len(sources) - 1] is sources[-1]
        )
        for file in sources:
            self.files.pop(index)
            self.valid_bytes -= file.valid_bytes
            self._retire(file)
        self.total_bytes += target.size_bytes
        self.valid_bytes += target.valid_bytes
        if target.valid_bytes > 0:
            self.files.insert(index, target)
        else:
            self._retire(target)

    # -- checkpoint and recovery -------------------------------------------------------------------

    def checkpoint_rows(self) -> list[bytes]:
        """The files as rows of a checkpoint.

        The rows, `next_id` and `next_file_number` are together the state of the store: take them in
        one go, and while no write is under way that might fail.
        """
        return [file.row() for file in self.files]

    def adopt(
        self, files: list[ContentFile], next_id: i64, next_file_number: i64, dead_paths: list[str]
    ) -> None:
        """Take over the files of recovery, in order of their ids; the next write starts a file."""
        self.files = files
        self.next_id = next_id
        self._written_upto = next_id
        self.next_file_number = next_file_number
        self._dead_paths.extend(dead_paths)
        for file in files:
            self.total_bytes += file.size_bytes
            self.valid_bytes += file.valid_bytes

    def check(self) -> None:
        """Assert that the counts agree with each other."""
        total: i64 = 0
        valid: i64 = 0
        end: i64 = 0
        for file in self.files:
            assert (
                file.first_id >= end
                and file.end_id >= file.first_id
                and file.end_id <= self.next_id
            )
            assert file.valid_bytes >= 0 and file.valid_bytes <= file.size_bytes - FILE_HEADER_BYTES
            assert (file.valid_bytes == 0) == (len(file.live_ids()) == 0)
            assert (
                file.valid_bytes > 0
                or file is self._current
                or file.writes_under_way > 0
                or file.is_compacting
            )
            assert file.number < self.next_file_number
            assert len(file.ids) == 0 or len(file.ids) == 8 * file.count
            end = file.end_id
            total += file.size_bytes
            valid += file.valid_bytes
        assert total == self.total_bytes and valid == self.valid_bytes


def _has_garbage(file: ContentFile, percent: i64) -> bool:
    """Whether more than `percent` of the file is garbage."""
    return (file.size_bytes - file.valid_bytes) * 100 > percent * file.size_bytes


def _released_in(files: list[ContentFile], content_id: i64) -> i64:
    for file in files:
        place = file.place_of(content_id)
        if place >= 0:
            return file.released_at(place)
    return GONE
