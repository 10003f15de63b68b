"""What a start makes of the files of a persistent content store: the checkpoint, the directory and the journal's tail.

In this order: `restore` the checkpoint's rows; `restore_file` for each file of the directory, by ascending number; then
for the journal's tail `add_recovered` for each content added since the checkpoint that a live position needs, and
`release` for each reference that a RELEASE behind the checkpoint gives up; then `finish`.

A content added since the checkpoint has as many references as there are live positions that share it; whatever else the
new files hold is garbage: a batch that did not become durable, or one that was settled since. Of older contents the
checkpoint has the counts, and the RELEASE records say what has changed.

Files are written one after the other, so both numbers and first ids ascend. A file the checkpoint does not know and
whose first id is not above everything before it is the copy that a compaction made: its sources are deleted only after a
checkpoint that knows the copy, so they are still there, and the copy is not needed. Should they not be there, the copy
is all there is: it is left alone and reported (G10).
"""

from mypy_extensions import i64

from warren.store.content_file import GONE, ContentFile, number_in_row
from warren.store.content_records import CONTENT_RECORD_MIN_BYTES
from warren.store.content_store import ContentStore
from warren.store.message import ContentRef
from warren.store.record import FILE_HEADER_BYTES


class ContentRecovery:
    """Fills an empty ContentStore. Sizes in bytes; paths relative to the vhost's directory."""

    def __init__(self, store: ContentStore) -> None:
        self.store: ContentStore = store
        # Files the checkpoint knows that are not there: what they held is lost.
        self.missing_paths: list[str] = []
        # Files that belong to nothing known; for lost+found.
        self.strange_paths: list[str] = []
        self.unknown_releases: i64 = 0
        # In order of their ids.
        self._files: list[ContentFile] = []
        self._listed: dict[int, ContentFile] = {}
        self._seen: set[int] = set()
        self._next_id: i64 = 1
        self._next_file_number: i64 = 0
        # Ids below this one were given out before the checkpoint.
        self._tail_id: i64 = 1
        self._copies: list[ContentFile] = []
        self._dead_paths: list[str] = []

    def restore(self, rows: list[bytes], next_id: i64, next_file_number: i64) -> bool:
        """Start from a checkpoint; False when it contradicts itself, then nothing was taken over."""
        files: list[ContentFile] = []
        listed: dict[int, ContentFile] = {}
        end: i64 = 1
        for row in rows:
            number = number_in_row(row)
            file = ContentFile(number, self.store.path_of(number), 0)
            if number < 0 or number >= next_file_number or number in listed or not file.restore(row):
                return False
            if file.first_id < end or file.end_id < file.first_id or file.end_id > next_id:
                return False
            end = file.end_id
            files.append(file)
            listed[number] = file
        self._files = files
        self._listed = listed
        self._next_id = next_id
        self._tail_id = next_id
        self._next_file_number = next_file_number
        return True

    def is_listed(self, number: i64) -> bool:
        """Does the checkpoint know file `number`? If so, `restore_file` needs no first id."""
        return number in self._listed

    def restore_file(self, number: i64, first_id: i64, size_bytes: i64) -> None:
        """File `number` is there, with a header of this store, and the first valid content in it is `first_id` (-1: none)."""
        self._seen.add(number)
        self._next_file_number = max(self._next_file_number, number + 1)
        known = self._listed.get(number)
        if known is not None:
            if size_bytes > known.size_bytes:
                # Ids of contents that nobody refers to must not be given out again: their records are still there.
                self._skip_ids(known.end_id, size_bytes - known.size_bytes)
            # Bytes that are missing at its end were valid, for all we know; whoever needs them will notice.
            known.size_bytes = max(size_bytes, known.valid_bytes + FILE_HEADER_BYTES)
            return
        path = self.store.path_of(number)
        if first_id < 0:
            if size_bytes > FILE_HEADER_BYTES:
                self.strange_paths.append(path)
            else:
                self._dead_paths.append(path)
            return
        file = ContentFile(number, path, first_id)
        file.size_bytes = size_bytes
        if first_id < self._tail_id or (len(self._files) > 0 and first_id <= self._files[-1].first_id):
            self._copies.append(file)
            return
        self._files.append(file)
        self._skip_ids(first_id, size_bytes - FILE_HEADER_BYTES)

    def add_recovered(self, content: ContentRef, live_references: i64) -> bool:
        """The journal's tail has a content that `live_references` live positions share; False: it is not there.

        Contents that the checkpoint knows are left as they are. A second call for the same content changes nothing.
        """
        if content.id < self._tail_id:
            return True
        file = self._find(content.id)
        # A content of the tail is where it was written: copies do not count yet.
        if file is None or file.number != content.file or len(file.ids) > 0:
            return False
        if content.offset + content.stored_bytes > file.size_bytes:
            return False
        if content.id >= file.end_id:
            file.append_gone(content.id + 1)
        place = file.place_of(content.id)
        if file.released_at(place) == GONE:
            file.set_released(place, max(content.references - live_references, 0))
            file.valid_bytes += content.stored_bytes
        self._next_id = max(self._next_id, content.id + 1)
        return True

    def release(self, content_id: i64, references: i64, stored_bytes: i64) -> None:
        """A RELEASE behind the checkpoint gives up one reference. Not for contents of the tail: theirs are counted."""
        if content_id >= self._tail_id:
            return
        file = self._find(content_id)
        place: i64 = file.place_of(content_id) if file is not None else -1
        if file is None or place < 0:
            self.unknown_releases += 1
        else:
            file.release(place, references, stored_bytes)

    def finish(self) -> None:
        """Hand the files over to the store."""
        files: list[ContentFile] = []
        for file in self._files:
            if file.number in self._seen:
                if file.valid_bytes > 0:
                    files.append(file)
                else:
                    self._dead_paths.append(file.path)
            elif file.valid_bytes > 0:
                self.missing_paths.append(file.path)
        for copy in self._copies:
            source = self._find(copy.first_id)
            if source is not None and source.number in self._seen:
                self._dead_paths.append(copy.path)
            else:
                self.strange_paths.append(copy.path)
        self.store.adopt(files, self._next_id, self._next_file_number, self._dead_paths)

    def _skip_ids(self, first_id: i64, size_bytes: i64) -> None:
        self._next_id = max(self._next_id, first_id + size_bytes // CONTENT_RECORD_MIN_BYTES + 1)

    def _find(self, content_id: i64) -> ContentFile | None:
        """The last file that begins at or before `content_id`."""
        files = self._files
        low: i64 = 0
        high: i64 = len(files)
        while low < high:
            middle = (low + high) >> 1
            if files[middle].first_id <= content_id:
                low = middle + 1
            else:
                high = middle
        return files[low - 1] if low > 0 else None
