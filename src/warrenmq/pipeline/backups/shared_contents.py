"""Large messages that went to several queues: found in a backup, stored once, shared by queues.

First, tasks list the messages of each file of the backup whose content was shared (`find_shared`).
Contents that several of the restored messages still share get a place in `SharedList`, in the order
of the files, so that the tasks that store them read each file once (`write_shared_part`). The table
of their places (`PLACE`) then serves the writers of queues. All lists are numpy files in the work
directory; processes that need a part of one map it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from warrenmq.offline.part_writer import MessageRow, PartWriter, SharedContent, Sharer
from warrenmq.offline.store_plan import Part, PartManifest
from warrenmq.pipeline.backups.chain import AliveRuns, Chain, ChainFile, alive_runs, only_alive
from warrenmq.tables.data_files import DATA_SCHEMA
from warrenmq.tables.file_scan import Array
from warrenmq.tables.messages_to_write import columns_of

SHARER: Final = np.dtype(
    [
        ("content_id", "<i8"),
        ("file", "<i8"),
        ("row", "<i8"),
        ("queue_id", "<i8"),
        ("seq", "<i8"),
        ("expires_ms", "<i8"),
        ("redelivered", "<i8"),
    ]
)
# A row of the places table, ascending by `content_id`, the id in the backup; other fields as in
# SharedContent.
PLACE: Final = np.dtype(
    [("content_id", "<i8"), *((name, "<i8") for name in SharedContent.__struct_fields__)]
)
_SHARER_COLUMNS: Final = (
    "queue_id",
    "seq",
    "redelivered",
    "expires_at",
    "content_id",
    "references",
)
_CONTENTS_NAME: Final = "contents.npy"
_SHARERS_NAME: Final = "sharers.npy"
_PLACES_NAME: Final = "places.npy"


class Found(msgspec.Struct, frozen=True):
    """The number of messages in a file whose content was shared."""

    rows: int


@dataclass(frozen=True)
class FindTask:
    """The task that searches the file `number` of a chain."""

    chain: Chain
    number: int
    work: Path


def find_shared(task: FindTask) -> Found:
    """In a worker: write the messages of a file that shared a content, as an array of SHARER."""
    found = task.chain.files()[task.number]
    runs = alive_runs(task.chain) if found.is_older else {}
    parts = [np.empty(0, SHARER)]
    start = 0
    with found.opened() as file:
        for batch in file.iter_batches(65536, columns=list(_SHARER_COLUMNS)):
            parts.append(_sharers(batch, start, task.number, runs if found.is_older else None))
            start += batch.num_rows
    sharers = np.concatenate(parts)
    np.save(_of_file(task.work, task.number), sharers)
    return Found(len(sharers))


def _sharers(batch: Any, start: int, number: int, runs: dict[int, AliveRuns] | None) -> Array:
    rows = pa.array(np.arange(start, start + batch.num_rows))
    batch = batch.append_column("row", rows)
    references = batch.column("references").fill_null(0).to_numpy()
    batch = batch.filter(pa.array(references > 1))
    if runs is not None:
        batch = only_alive(batch, runs)
    sharers = np.empty(batch.num_rows, SHARER)
    sharers["file"] = number
    for name in ("content_id", "row", "queue_id", "seq"):
        sharers[name] = batch.column(name).to_numpy()
    sharers["expires_ms"] = (
        batch.column("expires_at").cast(pa.int64()).fill_null(0).to_numpy() // 1000
    )
    sharers["redelivered"] = batch.column("redelivered").to_numpy(zero_copy_only=False)
    return sharers


def _of_file(work: Path, number: int) -> Path:
    return work / f"file-{number}.npy"


@dataclass(frozen=True)
class SharedList:
    """The contents that several restored messages share; its files are in `work`."""

    work: Path
    count: int

    def find(self, content_ids: Array) -> Array:
        """For each of `content_ids` (0: none) its row in the places table, or -1."""
        if self.count == 0:
            return np.full(len(content_ids), -1)
        known = np.load(self.work / _PLACES_NAME, mmap_mode="r")["content_id"]
        place = np.minimum(np.searchsorted(known, content_ids), self.count - 1)
        return np.where(known[place] == content_ids, place, -1)

    def places(self) -> Array:
        """The places table; exists once all shared contents are stored (`note_places`)."""
        places: Array = np.load(self.work / _PLACES_NAME, mmap_mode="r")
        return places


def list_shared(work: Path, files: int, queue_ids: set[int]) -> SharedList:
    """Merge the lists of all files, without queues not in `queue_ids`: these are not restored."""
    arrays = [np.load(_of_file(work, number)) for number in range(files)]
    sharers = np.concatenate([np.empty(0, SHARER), *arrays])
    sharers = sharers[np.isin(sharers["queue_id"], list(queue_ids))]
    ids, first, inverse, counts = np.unique(
        sharers["content_id"], return_index=True, return_inverse=True, return_counts=True
    )
    # Keep the order of files and rows; the first message with a content supplies it.
    kept = np.flatnonzero(counts > 1)
    kept = kept[np.argsort(first[kept])]
    rank = np.full(len(ids), -1)
    rank[kept] = np.arange(len(kept))
    ranks = rank[inverse]
    order = np.argsort(ranks, kind="stable")
    order = order[ranks[order] >= 0]
    sharers, ranks = sharers[order], ranks[order]
    contents = np.append(np.searchsorted(ranks, np.arange(len(kept))), len(ranks))
    np.save(work / _SHARERS_NAME, sharers)
    np.save(work / _CONTENTS_NAME, contents)
    return SharedList(work, len(kept))


@dataclass(frozen=True)
class SharedTask:
    """A task that writes the contents `first` to `end` of the list to a part of the new store."""

    chain: Chain
    shared: SharedList
    work: Path
    part: Part
    first: int
    end: int


def write_shared_part(task: SharedTask) -> PartManifest:
    """In a worker: store the task's contents, and write their rows of the places table."""
    starts = np.load(task.shared.work / _CONTENTS_NAME, mmap_mode="r")[task.first : task.end + 1]
    sharers = np.load(task.shared.work / _SHARERS_NAME, mmap_mode="r")
    owners = sharers[starts[:-1]]
    places = np.empty(len(owners), PLACE)
    files = task.chain.files()
    with PartWriter(task.work, task.part) as writer:
        index = 0
        for number in np.unique(owners["file"]).tolist():
            rows = owners["row"][owners["file"] == number]
            for message in _messages_at(files[number], rows):
                some = sharers[starts[index] : starts[index + 1]]
                content = writer.share(message, _sharers_of(some))
                places[index] = (owners["content_id"][index], *msgspec.structs.astuple(content))
                index += 1
        np.save(_of_part(task.shared.work, task.part), places)
        return writer.finish()


def _sharers_of(rows: Array) -> list[Sharer]:
    names = ("queue_id", "seq", "expires_ms", "redelivered")
    columns = [rows[name].tolist() for name in names]
    return [
        Sharer(queue, seq, ms, bool(again)) for queue, seq, ms, again in zip(*columns, strict=True)
    ]


def _messages_at(found: ChainFile, rows: Array) -> Any:
    """Yield the messages at ascending `rows` of a file."""
    start = 0
    with found.opened() as file:
        groups = []
        firsts = []
        for number in range(file.num_row_groups):
            end = start + file.metadata.row_group(number).num_rows
            if np.any((rows >= start) & (rows < end)):
                groups.append(number)
                firsts.append(start)
            start = end
        for number, first in zip(groups, firsts, strict=True):
            at = first
            for batch in file.iter_batches(2000, row_groups=[number], columns=DATA_SCHEMA.names):
                wanted = rows[(rows >= at) & (rows < at + batch.num_rows)] - at
                at += batch.num_rows
                if len(wanted):
                    yield from _messages(batch.take(pa.array(wanted)))


def _messages(batch: Any) -> Any:
    columns = columns_of(batch)
    for place, address in enumerate(columns.addresses):
        end = 1 + address[0]
        yield MessageRow(
            address[1:end],
            address[end + 1 :],
            columns.properties[place],
            columns.bodies[place],
            columns.enqueued_ms[place],
            persistent=columns.persistent[place],
        )


def _of_part(work: Path, part: Part) -> Path:
    return work / f"part-{part.name}.npy"


def note_places(shared: SharedList, parts: list[Part]) -> None:
    """Write the places table, by content id, once all parts with shared contents are written."""
    arrays = [np.load(_of_part(shared.work, part)) for part in parts]
    places = np.concatenate([np.empty(0, PLACE), *arrays])
    np.save(shared.work / _PLACES_NAME, places[np.argsort(places["content_id"])])


def content_at(places: Array, row: int) -> SharedContent:
    """A row of the places table, for `PartWriter.add_shared`."""
    fields = dict(zip(PLACE.names or (), places[row].tolist(), strict=True))
    del fields["content_id"]
    fields["persistent"] = bool(fields["persistent"])
    return msgspec.convert(fields, SharedContent)
