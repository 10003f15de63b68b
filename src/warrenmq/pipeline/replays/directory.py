"""The checkpoint of a replay: the files from which an interrupted replay resumes.

CHECKPOINT contains `replay.json`, which identifies the replay, and `messages/`: the chosen messages
in their order, as Parquet files. They are copied before the first one is published. So the n-th
message is the same in each run, even if the source changes meanwhile. The broker knows how many of
them are published (`staged_publisher.py`).
"""

import contextlib
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from warrenmq.pipeline.places import LocalPlace, place_of
from warrenmq.pipeline.result import JobError, must_have_parent
from warrenmq.pipeline.state_files import locked, read_state, write_state
from warrenmq.store.disk.files import sync_directory, sync_file

REPLAY_VERSION: Final = 1
_READ_BYTES: Final = 8 << 20
_READ_ROWS_MAX: Final = 4096


class ReplayIdentity(msgspec.Struct, frozen=True):
    """The permanent properties of a replay."""

    sources: list[str]
    where: str | None
    exchange: str | None
    routing_key: str | None
    vhost: str


class MessageFile(msgspec.Struct, frozen=True):
    """A file of chosen messages: its name and its number of rows."""

    name: str
    rows: int


class ReplayState(msgspec.Struct, frozen=True):
    """The state of a replay. `files` are in the order of their messages.

    `is_begun`: at least one message was published. `ended`: when the last one was published, as
    text.
    """

    version: int
    identity: ReplayIdentity
    sink: str
    files: list[MessageFile]
    is_begun: bool = False
    ended: str | None = None

    @property
    def messages(self) -> int:
        """The number of chosen messages."""
        return sum([file.rows for file in self.files])


class ReplayDirectory:
    """The checkpoint directory of one replay."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._messages = path / "messages"

    @property
    def draft(self) -> Path:
        """The directory in which the chosen messages are written at first."""
        return self.path / "messages.new"

    @property
    def has_chosen(self) -> bool:
        """True once the messages are copied here, so that the sources are no longer needed."""
        return (self.path / "replay.json").is_file()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this replay. JobError when it is taken, or the path is no checkpoint."""
        must_have_parent(self.path)
        if self.path.exists() and (not self.path.is_dir() or self._is_strange()):
            raise JobError(
                f"{self.path} is no checkpoint of a replay: name a new directory with --checkpoint"
            )
        with locked(self.path, f"another process works on the replay in {self.path}"):
            yield

    def _is_strange(self) -> bool:
        known = {"lock", "replay.json", ".replay.json.new", self._messages.name, self.draft.name}
        return any(name not in known for name in os.listdir(self.path))

    def forget_unbegun(self) -> None:
        """Remove the checkpoint when no messages were chosen: the request could not be done."""
        if self.known() is None:
            shutil.rmtree(self.path, ignore_errors=True)

    def known(self) -> ReplayState | None:
        """The stored state; None when no messages are chosen yet. JobError for another version."""
        found = read_state(self.path / "replay.json", ReplayState)
        if found is not None and found.version != REPLAY_VERSION:
            raise JobError(f"{self.path} was made by another version of warren ({found.version})")
        return found

    def expect(self, wanted: ReplayIdentity) -> ReplayState | None:
        """The stored state of this replay. JobError when the checkpoint is of another replay."""
        found = self.known()
        if found is not None and found.identity != wanted:
            different = [
                f"{name.replace('_', ' ')} {getattr(found.identity, name)!r}, not {getattr(wanted, name)!r}"
                for name in ReplayIdentity.__struct_fields__
                if getattr(found.identity, name) != getattr(wanted, name)
            ]
            raise JobError(f"{self.path} belongs to another replay: {'; '.join(different)}")
        return found

    def keep(self, state: ReplayState) -> ReplayState:
        """Store the state durably and return it."""
        write_state(self.path / "replay.json", state)
        return state

    def adopt_draft(self, identity: ReplayIdentity, sink: str) -> ReplayState:
        """Make the messages in `draft` the chosen ones; returns the first state of the replay."""
        import pyarrow.parquet as pq

        files = []
        for path in sorted(self.draft.glob("part-*.parquet")):
            sync_file(path)
            files.append(MessageFile(path.name, pq.read_metadata(path).num_rows))
        sync_directory(self.draft)
        shutil.rmtree(self._messages, ignore_errors=True)
        self.draft.rename(self._messages)
        return self.keep(ReplayState(REPLAY_VERSION, identity, sink, files))

    def drop_messages(self) -> None:
        """Delete the messages once all are published."""
        shutil.rmtree(self._messages, ignore_errors=True)

    def messages(self, state: ReplayState, first: int) -> Iterator[Any]:
        """Yield the messages after the first `first`, as record batches."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        skipped = 0
        for file in state.files:
            if skipped + file.rows <= first:
                skipped += file.rows
                continue
            try:
                with pq.ParquetFile(self._messages / file.name) as parquet:
                    for group in range(parquet.num_row_groups):
                        figures = parquet.metadata.row_group(group)
                        if skipped + figures.num_rows <= first:
                            skipped += figures.num_rows
                            continue
                        size = max(figures.total_byte_size // max(figures.num_rows, 1), 1)
                        count = min(max(_READ_BYTES // size, 1), _READ_ROWS_MAX)
                        for batch in parquet.iter_batches(count, row_groups=[group]):
                            left_out = min(max(first - skipped, 0), batch.num_rows)
                            skipped += left_out
                            if left_out < batch.num_rows:
                                yield batch.slice(left_out)
            except (OSError, pa.ArrowException) as error:
                raise JobError(f"{self._messages / file.name} cannot be read: {error}") from None


def default_checkpoint(identity: ReplayIdentity, where: str) -> Path:
    """A path beside the first source; the same for equal replays into node `where` (host:port).

    JobError when the first source is not on a disk of this machine.
    """
    first = place_of(identity.sources[0])
    if not isinstance(first, LocalPlace):
        raise JobError(
            f"{first} is not on a disk of this machine: name a directory of this machine for the job's progress (checkpoint)"
        )
    place = first.path
    name = place.name
    # Leave the partition directories of a table: a checkpoint among them would look like data.
    while "=" in place.name:
        place = place.parent
    text = msgspec.json.encode((identity, where))
    return place.with_name(f"{name}.replay-{zlib.crc32(text):08x}")
