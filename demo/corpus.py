"""The input: the files of the Python standard library, and the queue of each file.

A file's kind is its extension; the kind is the routing key. The two most frequent kinds have a
queue each, all others share one. Every file is one message, identified by its message-id.
"""

import hashlib
import os
import stat
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.checks import DemoError

# Directories that are not part of the library: installed packages and compiled bytecode.
SKIPPED_DIRECTORIES = {"site-packages", "dist-packages", "__pycache__"}
# Largest body that Spark accepts in one row (docs/spark/streams.md).
# A static libpython can be larger.
FILE_BYTES_MAX = 64 * 1024 * 1024
# RabbitMQ and warren store bodies from this size on outside of the queue's index.
EMBED_BYTES = 4096


@dataclass(frozen=True)
class SourceFile:
    """One file as read at the start of the demo; `number` is its place in the publishing order."""

    number: int
    path: Path
    name: str
    kind: str
    size: int
    sha256: str

    @property
    def message_id(self) -> str:
        """The message-id of the file, the same when it is published again."""
        return f"stdlib-{self.number:06d}"


@dataclass(frozen=True)
class QueuePlan:
    """The queues: Spark streams `streamed`, pika consumes `consumed`, Spark only reads `reported`.

    The messages of `reported` stay in the queue.
    """

    streamed: str
    consumed: str
    reported: str
    queue_of_kind: dict[str, str]

    @property
    def queues(self) -> tuple[str, str, str]:
        """The names of all queues."""
        return (self.streamed, self.consumed, self.reported)


@dataclass(frozen=True)
class Corpus:
    """All files to publish, and the skipped files (as text, for the report)."""

    root: Path
    files: list[SourceFile]
    left_out: list[str]
    plan: QueuePlan

    @property
    def total_bytes(self) -> int:
        """The size of all bodies together, in bytes."""
        return sum(file.size for file in self.files)

    def queue_of(self, file: SourceFile) -> str:
        """The queue that the file's message goes to."""
        return self.plan.queue_of_kind[file.kind]

    def in_queue(self, queue: str, files: list[SourceFile]) -> list[SourceFile]:
        """The members of `files` that go to `queue`, in order."""
        return [file for file in files if self.queue_of(file) == queue]


def find_files() -> tuple[Path, list[Path]]:
    """Return the library's directory and its regular files, sorted.

    DemoError when there is no such directory, or no file in it.
    """
    root = Path(sysconfig.get_path("stdlib"))
    if not root.is_dir():
        raise DemoError(f"there is no standard library to publish: {root} is not a directory")
    paths = sorted(_regular_files(root))
    if not paths:
        raise DemoError(f"there is no standard library to publish: {root} has no files")
    return root, paths


def sample(paths: list[Path], count: int | None) -> list[Path]:
    """Return `count` of the paths, evenly spread; all of them for None."""
    if count is None or count >= len(paths):
        return paths
    return [paths[index * len(paths) // count] for index in range(count)]


def read_corpus(root: Path, paths: list[Path], advance: Callable[[], None]) -> Corpus:
    """Read every file once; `advance` is called for each.

    DemoError when a file cannot be read, or when there are fewer than three kinds.
    """
    files: list[SourceFile] = []
    left_out: list[str] = []
    for path in paths:
        name = os.fsencode(path.relative_to(root)).decode("utf-8", "replace")
        try:
            size = path.stat().st_size
            if size > FILE_BYTES_MAX:
                left_out.append(f"{name} ({size:,} bytes)")
                continue
            body = path.read_bytes()
        except OSError as error:
            raise DemoError(
                f"a file of the standard library cannot be read: {path}: {error.strerror}"
            ) from None
        kind = path.suffix or "(none)"
        files.append(
            SourceFile(len(files), path, name, kind, len(body), hashlib.sha256(body).hexdigest())
        )
        advance()
    return Corpus(root, files, left_out, _plan_queues(Counter(file.kind for file in files)))


def _regular_files(root: Path) -> Iterator[Path]:
    for directory, subdirectories, names in os.walk(root, onerror=_refuse):
        subdirectories[:] = [name for name in subdirectories if name not in SKIPPED_DIRECTORIES]
        for name in names:
            path = Path(directory, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _refuse(error: OSError) -> None:
    raise DemoError(f"the standard library cannot be read: {error.filename}: {error.strerror}")


def _plan_queues(kinds: Counter[str]) -> QueuePlan:
    frequent = [kind for kind, _ in kinds.most_common() if kind.startswith(".")][:2]
    if len(frequent) < 2 or len(kinds) < 3:
        raise DemoError(
            f"the files have too few extensions to fill three queues: {', '.join(sorted(kinds))}"
        )
    queue_of_kind = {
        kind: f"stdlib{kind}" if kind in frequent else "stdlib.others" for kind in kinds
    }
    return QueuePlan(f"stdlib{frequent[0]}", f"stdlib{frequent[1]}", "stdlib.others", queue_of_kind)
