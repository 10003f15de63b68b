"""Directories of archives and backups: on a disk, or in another file system that a URI names.

A job reads and writes through `Place`, so it does not ask where a directory is. pyarrow reaches the
other file systems: S3, Google's and Azure's object stores, HDFS. What differs is how a file gets
its final name. On a disk that is a rename, which counts once the directory is synced. An object
store has no rename: an object is there, whole and durable, when its upload ends, and moving it is a
copy inside the store and a deletion. Either can be repeated after a crash.

Access to an object store is set up as for the store's own tools (for S3: the variables `AWS_*`, or
`~/.aws`), because a URI is written to logs and checkpoints and must have no secret.
"""

import contextlib
import functools
import os
import posixpath
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from warrenmq.pipeline.result import JobError
from warrenmq.store.disk.files import sync_directory, sync_file

# Requests to an object store at the same time; each waits for an answer.
_REQUESTS_AT_ONCE: Final = 16
_S3: Final = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class PlacedFile:
    """A file's name below its place, with `/` between directories, and its size in bytes."""

    name: str
    bytes: int


class Place(Protocol):
    """A directory, which need not exist. Names are relative to it. Workers get it pickled."""

    def joined(self, name: str) -> "Place":
        """The place below this one."""
        ...

    def make(self) -> None:
        """Make the directory, durably, where the file system needs one."""
        ...

    def input(self, name: str) -> Any:
        """The file opened for pyarrow. FileNotFoundError when it is not there."""
        ...

    def output(self, name: str) -> Any:
        """A new file for pyarrow, with its directories; it is there once it is closed."""
        ...

    def sync(self, name: str) -> None:
        """Make the content of a closed file durable."""
        ...

    def sync_names(self, names: Sequence[str]) -> None:
        """Make the names of new files durable."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Make a whole file, durably; False, with nothing done, when there is one already.

        Two programs on one disk cannot both get True. Elsewhere they can at the same moment.
        """
        ...

    def replace(self, name: str, content: bytes, mode: int | None = None) -> None:
        """Make a whole file, durably, in place of one that may be there.

        `mode`: the permissions of the file where it is on a disk; None: as usual.
        """
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file."""
        ...

    def files(self) -> list[PlacedFile]:
        """All files below this place, in order of names."""
        ...

    def take(self, origin: "Place", names: Sequence[tuple[str, str]]) -> None:
        """Move files of `origin` here, durably: pairs of the old and the new name.

        A file that is not there any more has been moved before. May be repeated.
        """
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Delete files, durably; one that is not there is skipped."""
        ...

    def clear(self) -> None:
        """Delete everything below this place."""
        ...


@dataclass(frozen=True)
class LocalPlace:
    """A directory on a disk of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def joined(self, name: str) -> "LocalPlace":
        return LocalPlace(self.path / name)

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        # Of the directories of an archive at most two are new.
        for parent in (self.path.parent, self.path.parent.parent):
            sync_directory(parent)

    def input(self, name: str) -> Any:
        from pyarrow import OSFile

        return OSFile(str(self.path / name), "rb")

    def output(self, name: str) -> Any:
        from pyarrow import OSFile

        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return OSFile(str(path), "wb")

    def sync(self, name: str) -> None:
        sync_file(self.path / name)

    def sync_names(self, names: Sequence[str]) -> None:
        directories = set()
        for name in names:
            for parent in (self.path / name).parents:
                directories.add(parent)
                if parent == self.path:
                    break
        for directory in directories:
            sync_directory(directory)

    def create(self, name: str, content: bytes) -> bool:
        draft = self._draft(name, content)
        try:
            os.link(draft, self.path / name)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self.sync_names([name])
        return True

    def replace(self, name: str, content: bytes, mode: int | None = None) -> None:
        os.rename(self._draft(name, content, mode), self.path / name)
        self.sync_names([name])

    def _draft(self, name: str, content: bytes, mode: int | None = None) -> Path:
        goal = self.path / name
        goal.parent.mkdir(parents=True, exist_ok=True)
        draft = goal.with_name(f".{goal.name}.{secrets.token_hex(4)}")
        with draft.open("xb") as file:
            if mode is not None:
                os.chmod(draft, mode)
            file.write(content)
        sync_file(draft)
        return draft

    def exists(self, name: str) -> bool:
        return (self.path / name).is_file()

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def files(self) -> list[PlacedFile]:
        found = [
            PlacedFile(path.relative_to(self.path).as_posix(), path.stat().st_size)
            for path in self.path.rglob("*")
            if path.is_file()
        ]
        return sorted(found, key=lambda file: file.name)

    def take(self, origin: Place, names: Sequence[tuple[str, str]]) -> None:
        if not isinstance(origin, LocalPlace):
            raise TypeError(f"{origin} is not on a disk of this machine")
        for old, new in names:
            goal = self.path / new
            goal.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.rename(origin.path / old, goal)
        self.sync_names([new for _, new in names])

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        self.sync_names(names)

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True)
class RemotePlace:
    """A directory in a file system that pyarrow reaches. Errors of the store become JobError."""

    scheme: str
    # Bucket of an object store, or host and port.
    authority: str
    # Without `/` at its ends.
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{self.path}"

    def joined(self, name: str) -> "RemotePlace":
        return RemotePlace(self.scheme, self.authority, f"{self.path}/{name}")

    def make(self) -> None:
        """Do nothing: a file comes with its directories."""

    def input(self, name: str) -> Any:
        with self._reaching():
            return self._system.open_input_file(self._full(name))

    def output(self, name: str) -> Any:
        with self._reaching():
            if self.scheme == "hdfs":
                self._system.create_dir(self._full(name).rpartition("/")[0])
            return self._system.open_output_stream(self._full(name))

    def sync(self, name: str) -> None:
        """Do nothing: a file that is there is durable."""

    def sync_names(self, names: Sequence[str]) -> None:
        """Do nothing: a file that is there is durable."""

    def create(self, name: str, content: bytes) -> bool:
        if self.exists(name):
            return False
        self.replace(name, content)
        return True

    def replace(self, name: str, content: bytes, mode: int | None = None) -> None:
        with self._reaching(), self.output(name) as file:
            file.write(content)

    def exists(self, name: str) -> bool:
        with self._reaching():
            return bool(self._system.get_file_info(self._full(name)).is_file)

    def size(self, name: str) -> int:
        with self._reaching():
            return int(self._system.get_file_info(self._full(name)).size)

    def files(self) -> list[PlacedFile]:
        from pyarrow.fs import FileSelector

        base = self._full("")
        with self._reaching():
            found = self._system.get_file_info(
                FileSelector(base, allow_not_found=True, recursive=True)
            )
        files = [
            PlacedFile(each.path[len(base) :].lstrip("/"), each.size)
            for each in found
            if each.is_file
        ]
        return sorted(files, key=lambda file: file.name)

    def take(self, origin: Place, names: Sequence[tuple[str, str]]) -> None:
        if not isinstance(origin, RemotePlace):
            raise TypeError(f"{origin} is not in the file system of {self}")
        system = self._system
        with self._reaching():
            there = system.get_file_info([origin._full(old) for old, _ in names])
            left = [
                (each.path, self._full(new))
                for each, (_, new) in zip(there, names, strict=True)
                if each.is_file
            ]

            def move(pair: tuple[str, str]) -> None:
                # Copied again after a crash in between: the new object is the same one.
                system.copy_file(*pair)
                system.delete_file(pair[0])

            with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "warren-move") as threads:
                list(threads.map(move, left))

    def remove(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            with self._reaching(), contextlib.suppress(FileNotFoundError):
                self._system.delete_file(self._full(name))

        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "warren-delete") as threads:
            list(threads.map(delete, names))

    def clear(self) -> None:
        with self._reaching():
            self._system.delete_dir_contents(self._full(""), missing_dir_ok=True)

    @property
    def _system(self) -> Any:
        return pyarrow_system(self.scheme, self.authority)

    def _full(self, name: str) -> str:
        path = f"{self.path}/{name}".strip("/")
        return f"/{path}" if self.scheme in ("hdfs", "viewfs") else f"{self.authority}/{path}"

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise JobError(f"{self} cannot be reached: {' '.join(str(error).split())}") from error


@functools.lru_cache
def pyarrow_system(scheme: str, authority: str) -> Any:
    """The file system of a URI in this process; its connections are shared by all places."""
    from pyarrow import ArrowException, fs

    try:
        if scheme == "file":
            return fs.LocalFileSystem()
        if scheme in _S3:
            return _s3(authority)
        return fs.FileSystem.from_uri(f"{scheme}://{authority}/")[0]
    except (ArrowException, OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise JobError(f"{scheme}://{authority} cannot be reached: {reason}") from error


def _s3(bucket: str) -> Any:
    """S3, or another store with its interface, as the variables of AWS's own tools say."""
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = fs.resolve_s3_region(bucket)
    if endpoint is None:
        return fs.S3FileSystem(region=region)
    scheme, _, host = endpoint.rpartition("://")
    return fs.S3FileSystem(region=region, scheme=scheme or "https", endpoint_override=host)


def place_of(text: str | Path) -> LocalPlace | RemotePlace:
    """The place at a path or a URI. JobError for a URI that cannot name a directory."""
    whole = os.fspath(text)
    scheme = _scheme_of(whole)
    if scheme is None:
        return LocalPlace(Path(whole).absolute())
    parts = urlsplit(whole)
    if scheme == "file":
        return LocalPlace(Path(unquote(parts.path)).absolute())
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise JobError(
            f"a URI such as {scheme}://BUCKET/PATH has no user, '?' or '#': set up the access as for the store's own tools"
        )
    path = parts.path.strip("/")
    if not path or not parts.netloc:
        raise JobError(f"{whole} names no directory: {scheme}://BUCKET/PATH")
    return RemotePlace("s3" if scheme in _S3 else scheme, parts.netloc, path)


def path_between(start: Place, goal: Place) -> str:
    """The path or URI from which `place_from` finds `goal` again, relative where that is possible.

    Both may then be moved together.
    """
    if isinstance(start, LocalPlace) and isinstance(goal, LocalPlace):
        return os.path.relpath(goal.path.resolve(), start.path.resolve())
    if isinstance(start, RemotePlace) and isinstance(goal, RemotePlace):
        if (start.scheme, start.authority) == (goal.scheme, goal.authority):
            return posixpath.relpath(goal.path, start.path)
    return str(goal)


def place_from(start: Place, path: str) -> LocalPlace | RemotePlace:
    """The place at `path`, a URI or a path that may be relative to `start`."""
    if _scheme_of(path) is not None or os.path.isabs(path):
        return place_of(path)
    if isinstance(start, LocalPlace):
        return LocalPlace((start.path / path).resolve())
    assert isinstance(start, RemotePlace)
    whole = posixpath.normpath(f"/{start.path}/{path}").lstrip("/")
    return place_of(f"{start.scheme}://{start.authority}/{whole}")


def disk_path(text: str | Path) -> Path:
    """The path on a disk of this machine, which may be a `file:` URI. JobError for other URIs."""
    whole = os.fspath(text)
    if _scheme_of(whole) not in (None, "file"):
        raise JobError(
            f"{whole} is not on a disk of this machine, and this job needs it there: copy it with the store's own tools"
        )
    place = place_of(whole)
    assert isinstance(place, LocalPlace)
    return place.path


def _scheme_of(text: str) -> str | None:
    """The scheme of a URI; None for a path. A `Path` of a URI has lost a slash."""
    scheme, colon, rest = text.partition(":")
    return scheme if colon and scheme.isalnum() and rest.startswith("/") else None
