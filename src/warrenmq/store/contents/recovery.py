"""Restores a persistent content store at a start: from checkpoint, directory and journal tail.

Calls come in this order. `restore` with the checkpoint's rows; `restore_file` for each file of the
directory; then for the journal's tail `add_recovered` for each content added since the checkpoint,
`keep` for each reference that still exists although it may count as released, and `release` for
each reference that a RELEASE behind the checkpoint releases; then `finish`. Contents are not read.

A content added since the checkpoint has as many references as live positions share it, and it is
where the journal says: a copy by compaction that the checkpoint does not know does not count, since
its sources are deleted only after a checkpoint that knows the copy. (A start without a checkpoint
calls `add_recovered` for all contents, from a scan of their files; then numbers and ids need not
ascend together, and a file may have few of the ids of its range.) All other files in the directory
are garbage: such copies, and batches that did not become durable or were settled since. But when a
file that should be there is missing, nothing is taken for garbage (G10).
"""

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from warrenmq.store.contents.file import GONE, ContentFile, index_of, number_in_row
from warrenmq.store.contents.store import ContentStore
from warrenmq.store.model.message import ContentRef
from warrenmq.store.records.content import CONTENT_RECORD_MIN_BYTES
from warrenmq.store.records.record import FILE_HEADER_BYTES

# (content id, content, live references)
TailEntry = tuple[i64, ContentRef, i64]


class ContentRecovery:
    """Fills an empty ContentStore. Sizes in bytes; paths relative to the vhost's directory."""

    def __init__(self, store: ContentStore) -> None:
        self.store: ContentStore = store
        # Files that are gone although some of their contents are still needed: those are lost.
        self.missing_paths: list[str] = []
        # Files that nothing refers to, while others are missing; they go to lost+found.
        self.strange_paths: list[str] = []
        # Releases of contents that the checkpoint does not know.
        self.unknown_releases: i64 = 0
        self._files: list[ContentFile] = []
        self._next_id: i64 = 1
        self._next_file_number: i64 = 0
        # Ids below this one were given out before the checkpoint.
        self._tail_id: i64 = 1
        # Sizes in bytes of the files that exist, by number.
        self._sizes: dict[int, int] = {}
        # Contents added since the checkpoint with their live references, by the number of their
        # file.
        self._tail: dict[int, list[TailEntry]] = {}

    def restore(self, rows: list[bytes], next_id: i64, next_file_number: i64) -> bool:
        """Start from a checkpoint; False, and nothing taken over, when it contradicts itself."""
        files: list[ContentFile] = []
        numbers: set[int] = set()
        end: i64 = 1
        for row in rows:
            number = number_in_row(row)
            file = ContentFile(number, self.store.path_of(number), 0)
            if (
                number < 0
                or number >= next_file_number
                or number in numbers
                or not file.restore(row)
            ):
                return False
            if file.first_id < end or file.end_id < file.first_id or file.end_id > next_id:
                return False
            end = file.end_id
            files.append(file)
            numbers.add(number)
        self._files = files
        self._next_id = next_id
        self._tail_id = next_id
        self._next_file_number = next_file_number
        return True

    def restore_file(self, number: i64, size_bytes: i64) -> None:
        """Note that file `number` exists, with the header it should have."""
        self._sizes[number] = size_bytes
        self._next_file_number = max(self._next_file_number, number + 1)

    def add_recovered(self, content: ContentRef, live_references: i64) -> bool:
        """Add a content of the journal's tail; False: its file does not have it.

        `live_references` live positions share the content. Contents that the checkpoint knows are
        left as they are, and a second call for the same content changes nothing. Contents without
        live references count too: their ids must not be given out again.
        """
        if content.id < self._tail_id:
            return True
        self._skip_ids(content.id + 1, 0)
        if live_references <= 0:
            return True
        size: i64 = self._sizes.get(content.file, 0)
        left = size - content.offset - content.stored_bytes
        if left < 0:
            return False
        # Ids of contents behind this one, if any, must not be given out again: their records are
        # still in the file.
        self._skip_ids(content.id + 1, left)
        self._tail.setdefault(content.file, []).append((content.id, content, live_references))
        return True

    def release(self, content_id: i64, references: i64, stored_bytes: i64) -> None:
        """Release one reference, for a RELEASE behind the checkpoint.

        Contents of the tail are ignored: `add_recovered` gets their number of live references.
        """
        if content_id >= self._tail_id:
            return
        index = index_of(self._files, content_id)
        place: i64 = self._files[index].place_of(content_id) if index >= 0 else -1
        if place < 0:
            self.unknown_releases += 1
        else:
            self._files[index].release(place, references, stored_bytes)

    def keep(self, content_id: i64, references: i64, stored_bytes: i64) -> None:
        """Take back one released reference: a position holds it, but it may count as released."""
        index = index_of(self._files, content_id)
        place: i64 = self._files[index].place_of(content_id) if index >= 0 else -1
        if place < 0:
            return
        file = self._files[index]
        released = file.released_at(place)
        if released == GONE:
            released = references
            file.valid_bytes += stored_bytes
        if released > 0:
            file.set_released(place, released - 1)

    def finish(self) -> None:
        """Complete the files and hand them over to the store."""
        self._add_tail()
        kept: list[ContentFile] = []
        dead_paths: list[str] = []
        unknown: set[int] = set(self._sizes)
        unknown.difference_update(self._tail)
        for file in self._files:
            unknown.discard(file.number)
            if file.number not in self._sizes:
                if file.valid_bytes > 0:
                    self.missing_paths.append(file.path)
            elif file.valid_bytes > 0:
                kept.append(file)
            else:
                dead_paths.append(file.path)
        for number in sorted(unknown):
            path = self.store.path_of(number)
            if len(self.missing_paths) > 0:
                self.strange_paths.append(path)
            else:
                dead_paths.append(path)
        self.store.adopt(kept, self._next_id, self._next_file_number, dead_paths)

    def _add_tail(self) -> None:
        last: ContentFile | None = None
        listed: set[int] = set()
        for file in self._files:
            last = file
            listed.add(file.number)
            size: i64 = self._sizes.get(file.number, 0)
            if size > file.size_bytes:
                self._skip_ids(self._tail_id, size - file.size_bytes)
            # The bytes that are missing at the file's end may have been valid; a load that needs
            # them will find out.
            file.size_bytes = max(size, file.valid_bytes + FILE_HEADER_BYTES)
        for number in self._tail_in_order():
            contents = self._tail[number]
            if last is not None and last.number == number and len(last.ids) == 0:
                # The file that was being written when the checkpoint was taken: it has grown.
                last.append_gone(contents[-1][0] + 1)
            elif number in listed or (last is not None and contents[0][0] < last.end_id):
                # The file contradicts the checkpoint; it is not touched.
                self.strange_paths.append(self.store.path_of(number))
                continue
            else:
                last = self._new_file(number, contents)
                self._files.append(last)
            _count_references(last, contents)

    def _new_file(self, number: i64, contents: list[TailEntry]) -> ContentFile:
        """A file that holds `contents`, all of them as garbage.

        It may have few of the ids between them: see the top of this module.
        """
        file = ContentFile(number, self.store.path_of(number), contents[0][0])
        file.size_bytes = self._sizes[number]
        ids = BytesWriter()
        before: i64 = -1
        for content_id, _content, _live_references in contents:
            if content_id != before:
                write_i64_be(ids, content_id)
            before = content_id
        file.set_ids(ids.getvalue())
        place: i64 = 0
        while place < file.count:
            file.set_released(place, GONE)
            place += 1
        return file

    def _tail_in_order(self) -> list[int]:
        """Files of the tail in order of their first id.

        Numbers do not have that order: the copy of a compaction has a higher number than the files
        behind it.
        """
        order: list[tuple[i64, i64]] = []
        for number, contents in self._tail.items():
            contents.sort(key=_id_of)
            order.append((contents[0][0], number))
        order.sort()
        return [number for _first_id, number in order]

    def _skip_ids(self, first_id: i64, size_bytes: i64) -> None:
        self._next_id = max(self._next_id, first_id + size_bytes // CONTENT_RECORD_MIN_BYTES)


def _id_of(entry: TailEntry) -> i64:
    return entry[0]


def _count_references(file: ContentFile, contents: list[TailEntry]) -> None:
    for content_id, content, live_references in contents:
        place = file.place_of(content_id)
        if file.released_at(place) == GONE:
            file.set_released(place, max(content.references - live_references, 0))
            file.valid_bytes += content.stored_bytes
