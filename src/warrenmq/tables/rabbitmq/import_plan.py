"""Plans the import of a data directory: vhosts, queues, and partitions to be read in parallel.

Planning reads every index and the frames of the message store, but no contents. It follows
RabbitMQ's rules for a restart after a crash: persistent messages that are not acked come back.
Messages that a consumer had unacked are therefore imported, and transient messages are not. A
partition knows where each of its messages is, so reading it does not need the plan.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from warrenmq.tables.rabbitmq.content_files import Contents, scan_store
from warrenmq.tables.rabbitmq.damage import Damage
from warrenmq.tables.rabbitmq.queue_index import IN_STORE, LiveEntries, read_index
from warrenmq.tables.rabbitmq.slot_index import read_slots
from warrenmq.vocabulary.names import name_text

VHOSTS_PATH: Final = Path("msg_stores/vhosts")
PARTITION_BYTES: Final = 128 << 20
PARTITION_MESSAGES: Final = 100_000
# Most entries of a segment in this format; used where no `.config` has a lower number.
SEGMENT_ENTRIES_MAX: Final = 16384

_CONFIG: Final = re.compile(rb"\{\s*segment_entry_count\s*,\s*(\d{1,5})\s*\}")
_NAME_FILE: Final = re.compile(rb"VHOST: (.*?)\nQUEUE: (.*?)\n(?:INDEX: v2\n)?", re.DOTALL)
_PRIORITY_SUFFIX: Final = re.compile(rb"\x00(.)\Z", re.DOTALL)
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

# The arrays of a `Partition`, in the order of its fields.
_ARRAYS = ("seqs", "expiries", "files", "offsets", "lengths")


class DefinedQueue(NamedTuple):
    """A queue that the node's definitions name; 0 levels of priority: it has none."""

    vhost: str
    name: str
    levels: int = 0


class NotADataDirectory(Exception):
    """The directory is no readable data directory; the text says why."""


@dataclass(frozen=True)
class Partition:
    """The places of some messages of a queue, in order; pickles into about 40 bytes a message."""

    vhost: str
    queue: str
    # Files that have the messages.
    paths: tuple[str, ...]
    # Message ids, 16 bytes each.
    ids: bytes
    # Seq ids. This and the following are arrays with one value a message, all i64 but `files`.
    seqs: Any
    # Expiry of each message in µs since 1970; 0 means none.
    expiries: Any
    # Index into `paths` (i32).
    files: Any
    # Offset of the term in its file, in bytes.
    offsets: Any
    # Length of the term, in bytes.
    lengths: Any

    @property
    def messages(self) -> int:
        """How many messages the partition has."""
        return len(self.seqs)

    @property
    def bytes(self) -> int:
        """The bytes that the messages take in the files."""
        return int(self.lengths.sum())


@dataclass
class PlannedQueue:
    """The directory of a queue, or of one level of a queue with priorities."""

    vhost: str
    name: str
    path: Path
    # Level of the directory; None for a queue without priorities.
    priority: int | None = None
    # Messages that can be read.
    messages: int = 0
    # Bytes of the messages that can be read.
    bytes: int = 0
    # Messages that have an entry in the index and no content.
    missing: int = 0
    # Transient messages, which are not imported.
    transient: int = 0
    partitions: list[Partition] = field(default_factory=list)


@dataclass
class ImportPlan:
    """The plan; `queues` are in order of vhost and name, levels of priority from the highest."""

    path: Path
    vhosts: list[str] = field(default_factory=list)
    queues: list[PlannedQueue] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many messages can be read."""
        return sum(queue.messages for queue in self.queues)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions of all queues, in the order of `queues`."""
        return [partition for queue in self.queues for partition in queue.partitions]


def plan(
    directory: Path,
    defined: Iterable[DefinedQueue] = (),
    partition_bytes: int = PARTITION_BYTES,
) -> ImportPlan:
    """The plan for the data directory of a node, or for a directory that holds a single one.

    The queues in `defined` supply the name of a queue whose directory has lost it. Raises
    NotADataDirectory when the directory cannot be read.
    """
    try:
        found = ImportPlan(_node_directory(directory))
        vhosts = sorted(path for path in (found.path / VHOSTS_PATH).iterdir() if path.is_dir())
    except OSError as error:
        raise NotADataDirectory(f"{directory} cannot be read: {error}") from None
    names = _names_by_directory(defined)
    for path in vhosts:
        _VhostPlanning(path, found, names, partition_bytes).run()
    _tell_what_is_kept_elsewhere(found)
    found.vhosts.sort()
    found.queues.sort(
        key=lambda queue: (queue.vhost, queue.name, -(queue.priority or 0), queue.path)
    )
    return found


def directory_name(*parts: bytes) -> str:
    """The name of the directory that RabbitMQ makes for a vhost or a queue.

    `parts` is the name of a vhost, or b"queue" with the names of vhost and queue.
    """
    number = int.from_bytes(hashlib.md5(b"".join(parts), usedforsecurity=False).digest(), "big")
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _node_directory(directory: Path) -> Path:
    if not directory.is_dir():
        raise NotADataDirectory(f"{directory} is not a directory")
    candidates = [
        path for path in (directory, *sorted(directory.iterdir())) if (path / VHOSTS_PATH).is_dir()
    ]
    if len(candidates) == 1 or directory in candidates:
        return candidates[0]
    if candidates:
        raise NotADataDirectory(
            f"{directory} holds several nodes: {', '.join(path.name for path in candidates)}"
        )
    if (directory / "msg_store_persistent").is_dir():
        raise NotADataDirectory(
            f"{directory} has the layout of RabbitMQ before 3.7, which is not read"
        )
    raise NotADataDirectory(
        f"{directory} is not a data directory of RabbitMQ: it has no {VHOSTS_PATH}"
    )


def _tell_what_is_kept_elsewhere(found: ImportPlan) -> None:
    """Report queues of other types as damage: they are not read, but must not look empty."""
    for pattern, kind in (("quorum/*/*/", "quorum queue"), ("stream/*/", "stream")):
        for path in sorted(found.path.glob(pattern)):
            if path.is_dir():
                found.damage.append(
                    Damage("", "", str(path), 0, 0, f"the data of a {kind}, which is not read")
                )


def _names_by_directory(defined: Iterable[DefinedQueue]) -> dict[str, bytes]:
    """Names of queues, by the names of their directories, one for each level of priority."""
    names = {}
    for queue in defined:
        name = queue.name.encode()
        variants = [name]
        if queue.levels:
            variants += [name + bytes([0, level]) for level in range(min(queue.levels, 255) + 1)]
        for variant in variants:
            names[directory_name(b"queue", queue.vhost.encode(), variant)] = variant
    return names


class _VhostPlanning:
    """Plans the import of one vhost."""

    def __init__(
        self, path: Path, found: ImportPlan, names: dict[str, bytes], partition_bytes: int
    ) -> None:
        self._path = path
        self._found = found
        self._names = names
        self._partition_bytes = partition_bytes
        self._vhost = path.name
        self._queue = ""
        self._segment_entries = SEGMENT_ENTRIES_MAX

    def run(self) -> None:
        self._read_vhost_files()
        self._found.vhosts.append(self._vhost)
        queues = [self._read_queue(path) for path in self._queue_directories()]
        wanted = bytearray()
        for _, entries in queues:
            wanted += _ids_in_store(entries)
        self._queue = ""
        contents = scan_store(self._path / "msg_store_persistent", wanted, self._add_damage)
        for queue, entries in queues:
            self._queue = queue.name
            self._divide(queue, entries, contents)
            self._found.queues.append(queue)

    def _add_damage(self, path: str, offset: int, reason: str, messages: int = 0) -> None:
        self._found.damage.append(Damage(self._vhost, self._queue, path, offset, messages, reason))

    def _queue_directories(self) -> list[Path]:
        try:
            return sorted(path for path in (self._path / "queues").iterdir() if path.is_dir())
        except OSError as error:
            self._add_damage(
                str(self._path / "queues"), 0, f"the queues cannot be read: {error.strerror}"
            )
            return []

    def _read_vhost_files(self) -> None:
        try:
            self._vhost = (self._path / ".vhost").read_bytes().decode("utf-8", "replace")
        except OSError as error:
            self._add_damage(
                str(self._path / ".vhost"), 0, f"the vhost's name cannot be read: {error.strerror}"
            )
        config = self._path / ".config"
        try:
            match = _CONFIG.search(config.read_bytes())
        except FileNotFoundError:
            return
        except OSError:
            match = None
        if match is not None and 0 < int(match[1]) <= SEGMENT_ENTRIES_MAX:
            self._segment_entries = int(match[1])
        else:
            self._add_damage(
                str(config),
                0,
                f"names no number of entries in a segment, {SEGMENT_ENTRIES_MAX} is taken",
            )

    def _read_queue(self, path: Path) -> tuple[PlannedQueue, LiveEntries]:
        queue = self._named_queue(path)
        self._queue = queue.name
        entries = LiveEntries()
        try:
            read_index(path, self._segment_entries, entries, self._add_damage)
            read_slots(path, entries, self._add_damage)
        except OSError as error:
            self._add_damage(
                str(error.filename or path), 0, f"the index cannot be read: {error.strerror}"
            )
        queue.transient = entries.transient
        return queue, entries

    def _named_queue(self, path: Path) -> PlannedQueue:
        name = self._names.get(path.name, b"")
        try:
            match = _NAME_FILE.fullmatch((path / ".queue_name").read_bytes())
            if match is not None:
                name = match[2]
        except OSError:
            # The damage is reported below, unless the definitions have the name.
            pass
        if not name:
            self._queue = path.name
            self._add_damage(
                str(path / ".queue_name"), 0, "no queue's name; it goes by that of its directory"
            )
            return PlannedQueue(self._vhost, path.name, path)
        level = _PRIORITY_SUFFIX.search(name)
        if level is not None:
            return PlannedQueue(self._vhost, name_text(name[:-2]), path, level[1][0])
        return PlannedQueue(self._vhost, name_text(name), path)

    def _divide(self, queue: PlannedQueue, entries: LiveEntries, contents: Contents) -> None:
        """Find the contents of a queue's messages, and cut the queue into partitions."""
        seqs = np.frombuffer(entries.seqs, np.int64)
        order = np.argsort(seqs, kind="stable")
        # A queue whose conversion to version 2 was interrupted has messages in both indexes. The
        # newer index was read last, so the last entry of a seq id is the one to use.
        order = order[np.append(np.diff(seqs[order]) != 0, True)] if len(order) else order
        count = len(order)
        files = np.frombuffer(entries.files, np.int32).astype(np.int64)
        offsets = np.frombuffer(entries.offsets, np.int64).copy()
        lengths = np.frombuffer(entries.lengths, np.int64).copy()
        in_store = files == IN_STORE
        store_files, store_offsets, store_lengths = contents.lookup(_ids_in_store(entries))
        files[in_store] = np.where(store_files < 0, -1, store_files + len(entries.paths))
        offsets[in_store] = store_offsets
        lengths[in_store] = store_lengths
        order = order[files[order] >= 0]
        queue.missing = count - len(order)
        if queue.missing:
            first = int(seqs[files < 0].min())
            reason = (
                f"{queue.missing} messages have no content in the message store, from {first} on"
            )
            self._add_damage("", 0, reason, queue.missing)
        queue.messages = len(order)
        queue.bytes = int(lengths[order].sum())
        paths = (*entries.paths, *contents.paths)
        ids = np.frombuffer(entries.ids, "S16")
        expiries = np.frombuffer(entries.expiries, np.int64)
        for part in _parts(order, lengths, self._partition_bytes):
            used, numbers = np.unique(files[part], return_inverse=True)
            queue.partitions.append(
                Partition(
                    queue.vhost, queue.name, tuple(paths[number] for number in used.tolist()), ids[part].tobytes(),
                    seqs[part], expiries[part], numbers.astype(np.int32), offsets[part], lengths[part],
                )
            )  # fmt: skip


def _ids_in_store(entries: LiveEntries) -> bytearray:
    """Ids of the messages of a queue that are in the message store, 16 bytes each."""
    ids = np.frombuffer(entries.ids, "S16")
    return bytearray(ids[np.frombuffer(entries.files, np.int32) == IN_STORE].tobytes())


def _parts(order: Any, lengths: Any, partition_bytes: int) -> list[Any]:
    """Cut `order` into pieces of at most PARTITION_MESSAGES and about `partition_bytes`."""
    parts = []
    start = 0
    ends = np.cumsum(lengths[order])
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + partition_bytes, side="right"))
        end = min(max(end, start + 1), start + PARTITION_MESSAGES)
        parts.append(order[start:end])
        start = end
    return parts


def cut(partition: Partition, first: int, end: int) -> Partition:
    """The messages at the places [first, end) of a partition, as a partition."""
    arrays = {name: getattr(partition, name)[first:end] for name in _ARRAYS}
    return replace(partition, ids=partition.ids[16 * first : 16 * end], **arrays)


def save_partition(path: Path, partition: Partition) -> None:
    """Write a partition to a file."""
    np.savez(
        path,
        vhost=np.array(partition.vhost),
        queue=np.array(partition.queue),
        paths=np.array(partition.paths, str),
        ids=np.frombuffer(partition.ids, np.uint8),
        **{name: getattr(partition, name) for name in _ARRAYS},
    )


def load_partition(path: Path) -> Partition:
    """The partition that `save_partition` wrote to a file."""
    with np.load(path) as found:
        return Partition(
            str(found["vhost"]),
            str(found["queue"]),
            tuple(str(name) for name in found["paths"]),
            found["ids"].tobytes(),
            *(found[name] for name in _ARRAYS),
        )
