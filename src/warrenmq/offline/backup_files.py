"""The files of a backup: linked or copied into a new directory, with a manifest to check them.

A backup has the layout of a data directory, so the same tools read both. `manifest.json` is written
last: a backup without one was never finished. The manifest lists every file with its size and
CRC-32C, and has a checksum of its own.
"""

import datetime
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from warrenmq.offline.data_directory import JOBS_NAME, ToolError
from warrenmq.store.disk.files import make_directories, sync_directory

MANIFEST_NAME: Final = "manifest.json"
MANIFEST_FORMAT: Final = 1
PIECE_BYTES: Final = 1048576

# Called after each piece with its size in bytes; may wait to slow the work down, may raise to end
# it.
OnPiece = Callable[[int], None]


def now_text() -> str:
    """The current time in the form of a manifest (UTC, ISO 8601)."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def must_be_outside(directory: Path, target: Path) -> None:
    """Raise ToolError when the backup `target` would lie in the data directory itself.

    It may lie in the directory of jobs there, which no backup reads.
    """
    found, data = target.resolve(), directory.resolve()
    if found.is_relative_to(data) and not found.is_relative_to(data / JOBS_NAME):
        raise ToolError(f"{target} lies in the data directory {directory}")


@dataclass(frozen=True)
class SourceFile:
    """One file of a data directory to back up: its first `size` bytes, or the whole file when -1.

    A sealed file is never written to again, so it may be linked.
    """

    path: str
    size: int
    is_sealed: bool


@dataclass(frozen=True)
class ManifestFile:
    """The size in bytes and CRC-32C that a file of a backup must have."""

    path: str
    size: int
    crc: int


@dataclass
class Manifest:
    """The manifest of a backup. `version` is warren's, `created` as in `now_text`."""

    version: str
    created: str
    files: list[ManifestFile]

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def take_files(
    source: Path, target: Path, files: list[SourceFile], on_piece: OnPiece, on_file: OnPiece
) -> None:
    """Link or copy `files` of `source` to `target`.

    `on_piece` gets the size of each copied piece, `on_file` the size of each file, in bytes.
    FileExistsError when the target has a file of that name.
    """
    can_link = True
    made: set[Path] = set()
    for file in files:
        place = target / file.path
        if place.parent not in made:
            make_directories(place.parent)
            made.add(place.parent)
        if file.is_sealed and can_link:
            try:
                os.link(source / file.path, place)
                on_file(os.stat(place).st_size)
                continue
            except FileExistsError:
                raise
            except FileNotFoundError:
                raise
            except OSError:
                # The target is on another file system, or on one without links.
                can_link = False
        size = file.size if file.size >= 0 else os.stat(source / file.path).st_size
        copy_file(source / file.path, place, size, on_piece)
        on_file(size)


def copy_file(source: Path, target: Path, size: int, on_piece: OnPiece) -> int:
    """Copy the first `size` bytes of a file to a new, synced file; returns their CRC-32C."""
    crc = 0
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        os.chmod(target, 0o640)
        left = size
        while left > 0:
            data = reader.read(min(PIECE_BYTES, left))
            if not data:
                raise ToolError(f"{source} ends {left} bytes before it should")
            written = 0
            while written < len(data):
                written += writer.write(data[written:])
            crc = crc32c(data, crc)
            left -= len(data)
            on_piece(len(data))
        os.fdatasync(writer.fileno())
    return crc


def checksum(path: Path, on_piece: OnPiece) -> tuple[int, int]:
    """Size in bytes and CRC-32C of a file."""
    crc = 0
    size = 0
    with path.open("rb", buffering=0) as reader:
        while data := reader.read(PIECE_BYTES):
            crc = crc32c(data, crc)
            size += len(data)
            on_piece(len(data))
    return size, crc


class ManifestBuilder:
    """Computes the checksums of the files below `target` in steps, then writes the manifest."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._left: list[Path] = []
        self._directories: list[Path] = []
        self._files: list[ManifestFile] = []
        for directory, names, files in os.walk(target):
            names.sort()
            self._directories.append(Path(directory))
            self._left += [Path(directory) / name for name in sorted(files)]
        self._left.reverse()
        self.total_bytes = sum(path.stat().st_size for path in self._left)

    def add(self, some_bytes: int, on_piece: OnPiece) -> bool:
        """Read the next files, about `some_bytes` together; False when none is left."""
        done = 0
        while self._left and done < some_bytes:
            path = self._left.pop()
            size, crc = checksum(path, on_piece)
            self._files.append(ManifestFile(path.relative_to(self._target).as_posix(), size, crc))
            done += size
        return bool(self._left)

    def finish(self, version: str, created: str) -> Manifest:
        """Write the manifest; the whole backup is durable on return."""
        for directory in self._directories:
            sync_directory(directory)
        manifest = Manifest(version, created, self._files)
        _write_manifest(self._target, manifest)
        sync_directory(self._target)
        return manifest


def finish_backup(target: Path, version: str, created: str, on_piece: OnPiece) -> Manifest:
    """Write the manifest of all files in `target`; the backup is durable on return."""
    builder = ManifestBuilder(target)
    while builder.add(PIECE_BYTES, on_piece):
        continue
    return builder.finish(version, created)


def read_manifest(backup: Path) -> Manifest:
    """Read the manifest of a backup. Raises ToolError when it is missing or damaged."""
    path = backup / MANIFEST_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise ToolError(
            f"{backup} has no {MANIFEST_NAME}: it is no backup, or one that was not finished"
        ) from None
    except OSError as error:
        raise ToolError(f"{path}: {error}") from None
    try:
        raw = json.loads(text)
        crc = raw.pop("crc32c")
        if crc != f"{crc32c(_canonical(raw)):08x}":
            raise ValueError("its checksum is wrong")
        if raw["format"] != MANIFEST_FORMAT:
            raise ToolError(
                f"{path} has format {raw['format']}; this warren reads {MANIFEST_FORMAT}"
            )
        files = [
            ManifestFile(str(row["path"]), int(row["size"]), int(row["crc32c"], 16))
            for row in raw["files"]
        ]
        for file in files:
            _must_be_inside(file.path)
        return Manifest(str(raw["warren"]), str(raw["created"]), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"{path} is damaged: {error}") from None


def differences(backup: Path, manifest: Manifest, on_piece: OnPiece) -> list[str]:
    """Compare a backup with its manifest; returns one line for each file that differs."""
    found: list[str] = []
    for file in manifest.files:
        path = backup / file.path
        if not path.is_file():
            found.append(f"{file.path} is missing")
            continue
        try:
            size, crc = checksum(path, on_piece)
        except OSError as error:
            found.append(f"{file.path} cannot be read: {error}")
            continue
        if size != file.size:
            found.append(f"{file.path} has {size} bytes instead of {file.size}")
        elif crc != file.crc:
            found.append(f"{file.path} does not have the content that it had")
    return found


def incomplete_path(target: Path) -> Path:
    """The path at which a new directory is filled before it is renamed to `target`."""
    return target.with_name(f".{target.name}.incomplete")


def must_be_new(target: Path) -> None:
    """Raise ToolError unless a new directory can be renamed to `target`.

    `target` must not exist or be an empty directory, and no mount point. Its parent must exist:
    only the last name of a path is created, so that a typo creates nothing.
    """
    if not target.parent.is_dir():
        raise ToolError(f"there is no directory {target.parent} for {target.name}")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ToolError(f"{target} is there and is no directory")
    if target.is_dir() and any(target.iterdir()):
        raise ToolError(f"{target} is not empty")
    if target.is_dir() and os.path.ismount(target):
        raise ToolError(f"{target} is where a file system is mounted; name a new directory in it")


def begin_new(target: Path) -> Path:
    """Create the directory that will become `target`. ToolError when either path is taken."""
    must_be_new(target)
    path = incomplete_path(target)
    try:
        path.mkdir(mode=0o750)
    except FileExistsError:
        raise ToolError(
            f"{path} is there: one is being made, or was interrupted; then remove it"
        ) from None
    except OSError as error:
        raise ToolError(f"{path} cannot be made: {error}") from None
    return path


def put_in_place(path: Path, target: Path) -> None:
    """Give the finished directory `path` its name, durably."""
    # The rename replaces an empty directory.
    path.rename(target)
    sync_directory(target.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what can be removed of the unfinished directory `path`; errors are ignored.

    Two threads may do so at the same time.
    """
    shutil.rmtree(path, ignore_errors=True)


def _write_manifest(target: Path, manifest: Manifest) -> None:
    raw: dict[str, Any] = {
        "format": MANIFEST_FORMAT,
        "warren": manifest.version,
        "created": manifest.created,
        "files": [
            {"path": file.path, "size": file.size, "crc32c": f"{file.crc:08x}"}
            for file in manifest.files
        ],
    }
    raw["crc32c"] = f"{crc32c(_canonical(raw)):08x}"
    path = target / MANIFEST_NAME
    with path.open("x") as file:
        json.dump(raw, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def _canonical(raw: dict[str, Any]) -> bytes:
    return json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()


def _must_be_inside(path: str) -> None:
    if any(name in ("", ".", "..") for name in path.split("/")):
        raise ValueError(f"{path!r} is no path in a backup")
