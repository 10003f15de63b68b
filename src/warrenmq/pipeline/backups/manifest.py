"""The manifest of a Parquet backup, and the layout that it describes.

    TARGET/
    ├── data/part-N-X.parquet     messages (`tables/data_files.py`)
    ├── alive/part-N-X.parquet    incremental backup: the older messages that are still alive
    ├── topology.json             definitions (`topology.py`)
    └── manifest.json             all of these and their checksums, and its own; written last

N is the number of a part, and X is of one attempt to write it (`data_file.py`). TARGET is on a disk
or in another file system (`places.py`).

A backup without a manifest was never finished. An incremental backup has the messages that came
after its base, and runs of seq ids of the older messages that were alive when it was made. Each
message is in exactly one backup of a chain.
"""

import json
import re
from typing import Final

import msgspec
from crc32c import crc32c

from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.backups.topology import Topology
from warrenmq.pipeline.places import LocalPlace, Place
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.unfinished import CLAIM_NAME
from warrenmq.spark.reason import reason_of
from warrenmq.tables.file_figures import DataFile

FORMAT: Final = 1
KIND: Final = "warren vhost backup"
MANIFEST_NAME: Final = "manifest.json"
TOPOLOGY_NAME: Final = "topology.json"
DATA_PATH: Final = "data"
ALIVE_PATH: Final = "alive"
# Bytes of a file that are read at once to check it; more where each read is a request to a store.
_PIECE_BYTES: Final = 1 << 20
_REQUEST_BYTES: Final = 8 << 20
SEQ_END: Final = 1 << 62

# Attempts had no names of their own in the first backups.
_FILE_NAME: Final = re.compile(r"part-[0-9]{6}(-[0-9a-f]{8})?\.parquet")


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at the time of the backup, or a part of one: each has an id in the store.

    A level of a priority queue has the name of its queue, and a bucket of delayed messages the name
    "delayed messages".

    `rows` of its messages are in this backup, `older` ones in the backups before it; `lost`
    messages could not be read. `end_seq` is one above the last seq id in this and all earlier
    backups, 1 when there is none.
    """

    id: int
    name: str
    rows: int
    older: int
    lost: int
    digest: str
    end_seq: int
    next_seq: int

    @property
    def messages(self) -> int:
        """The queue's messages in this backup and its bases."""
        return self.rows + self.older


class BaseBackup(msgspec.Struct, frozen=True, kw_only=True):
    """The base of an incremental backup.

    `path` is its place at that time; `crc32c` is the checksum of its manifest.
    """

    id: str
    crc32c: str
    path: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a backup. `store_id` is the id of the vhost's store."""

    format: int
    kind: str
    id: str
    warren: str
    created: str
    source: str
    vhost: str
    store_id: str
    base: BaseBackup | None
    topology_crc32c: str
    queues: list[QueueEntry]
    data: list[DataFile]
    alive: list[DataFile]

    @property
    def messages(self) -> int:
        """The messages of all queues in this backup and its bases."""
        return sum(queue.messages for queue in self.queues)


def write_manifest(place: Place, manifest: Manifest) -> None:
    """Write the manifest durably; this finishes a backup."""
    raw = json.loads(msgspec.json.encode(manifest))
    raw["crc32c"] = f"{crc32c(_canonical(raw)):08x}"
    place.replace(MANIFEST_NAME, f"{json.dumps(raw, indent=1)}\n".encode())


def keep_only(place: Place, manifest: Manifest) -> None:
    """Delete what killed attempts have left in `place`. JobError when one of its files is missing.

    Called before the manifest is written.
    """
    there = {file.name: file.bytes for file in place.files()}
    for directory, files in ((DATA_PATH, manifest.data), (ALIVE_PATH, manifest.alive)):
        for file in files:
            if there.pop(f"{directory}/{file.name}", None) != file.bytes:
                raise JobError(
                    f"{place}/{directory}/{file.name} is not as this job has written it: remove {place} and what the job has stored to start over"
                )
    place.remove([name for name in there if name not in (TOPOLOGY_NAME, CLAIM_NAME)])


def read_manifest(place: Place) -> tuple[Manifest, str]:
    """The manifest in `place` and its checksum. ToolError when it is missing or damaged."""
    path = f"{place}/{MANIFEST_NAME}"
    try:
        raw = json.loads(_whole(place, MANIFEST_NAME))
        if not isinstance(raw, dict):
            raise ValueError("it is not a JSON object")
        crc = raw.pop("crc32c", None)
        if crc != f"{crc32c(_canonical(raw)):08x}":
            raise ValueError("its checksum is wrong, or it is of another kind of backup")
        if raw.get("kind") != KIND or raw.get("format") != FORMAT:
            raise ToolError(
                f"{path} has kind {raw.get('kind')!r} and format {raw.get('format')!r}; this reads {KIND!r}, {FORMAT}"
            )
        manifest = msgspec.convert(raw, Manifest)
        _must_make_sense(manifest)
    except FileNotFoundError:
        raise ToolError(
            f"{place} has no {MANIFEST_NAME}: it is no backup, or one that was not finished"
        ) from None
    except OSError as error:
        raise ToolError(f"{path}: {reason_of(error)}") from None
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(f"{path} is damaged: {error}") from None
    return manifest, str(crc)


def _must_make_sense(manifest: Manifest) -> None:
    ids = [queue.id for queue in manifest.queues]
    if len(set(ids)) < len(ids):
        raise ValueError("a queue id occurs twice")
    for queue in manifest.queues:
        figures = (queue.rows, queue.older, queue.lost, queue.next_seq)
        if min(figures) < 0 or not 0 < queue.end_seq <= SEQ_END or queue.next_seq > SEQ_END:
            raise ValueError(f"queue id {queue.id} has impossible figures")
    for files in (manifest.data, manifest.alive):
        names = [file.name for file in files]
        if len(set(names)) < len(names):
            raise ValueError("a file occurs twice")
        for file in files:
            if not _FILE_NAME.fullmatch(file.name):
                raise ValueError(f"{file.name!r} is no file of a backup")
            for rows in file.queues:
                int(rows.digest, 16)


def write_topology(place: Place, topology: Topology) -> str:
    """Write the definitions durably; returns their checksum."""
    data = msgspec.json.format(msgspec.json.encode(topology), indent=1)
    # Keep others out: the file has hashes of passwords.
    place.replace(TOPOLOGY_NAME, data, 0o640)
    return f"{crc32c(data):08x}"


def read_topology(place: Place, manifest: Manifest) -> Topology:
    """The definitions of a backup. ToolError when they do not match the manifest."""
    path = f"{place}/{TOPOLOGY_NAME}"
    try:
        data = _whole(place, TOPOLOGY_NAME)
        if f"{crc32c(data):08x}" != manifest.topology_crc32c:
            raise ToolError(f"{path} has changed since the backup was made")
        return msgspec.json.decode(data, type=Topology)
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {reason_of(error)}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise ToolError(f"{path} is damaged: {error}") from None


def file_problem(place: Place, file: DataFile) -> str:
    """Read a backup's file whole; returns one line on how it differs from the manifest, or "".

    OSError and JobError when it is there and cannot be read.
    """
    crc = 0
    size = 0
    path = f"{place}/{file.name}"
    piece_bytes = _REQUEST_BYTES
    if isinstance(place, LocalPlace):
        piece_bytes = _PIECE_BYTES
        if (place.path / file.name).is_symlink() or place.path.is_symlink():
            return f"{path} is a symbolic link"
    try:
        with place.input(file.name) as reader:
            while data := reader.read(piece_bytes):
                crc = crc32c(data, crc)
                size += len(data)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        raise OSError(f"{path} cannot be read: {reason_of(error)}") from None
    if size != file.bytes:
        return f"{path} has {size} bytes instead of {file.bytes}"
    if f"{crc:08x}" != file.crc32c:
        return f"{path} has another checksum than its manifest says"
    return ""


def _whole(place: Place, name: str) -> bytes:
    with place.input(name) as file:
        content: bytes = file.read()
    return content


def _canonical(raw: object) -> bytes:
    return json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
