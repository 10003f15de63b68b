"""Writes a new data directory from definitions and messages, in parts for any number of processes.

    writer = StoreWriter.create(directory, definitions, extents)
    for part in writer.plan.parts:
        with PartWriter(writer.work_directory, part) as writing:
            for columns in batches_of(part):
                writing.add_columns(columns)
            manifests.append(writing.finish())
    writer.finish(manifests)

`finish` puts `directory` in place in one step, whole and durable. Until then the plan and the parts
are in a directory beside it (`work_directory`), which no node takes for a data directory. After an
interruption, `StoreWriter.resume` continues without the parts whose manifests the caller has kept,
or `discard` removes everything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from warrenmq.broker.definitions.kinds import as_changes
from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.offline.backup_files import (
    begin_new,
    incomplete_path,
    put_in_place,
    remove_unfinished,
)
from warrenmq.offline.data_directory import DATABASE_NAME, VHOSTS_PATH, ToolError
from warrenmq.offline.part_writer import (
    DATA_NAME,
    PARTS_NAME,
    PLAN_NAME,
    read_plan,
    store_settings,
)
from warrenmq.offline.store_builder import StoreBuilder
from warrenmq.offline.store_plan import (
    PLAN_FORMAT,
    PartManifest,
    QueueExtent,
    StorePlan,
    WriterSettings,
    plan_parts,
)
from warrenmq.store.contents.file import ContentFile, number_in_row
from warrenmq.store.disk.files import (
    JOURNAL_DIRECTORY,
    load_store_id,
    make_directories,
    put_whole,
    read_whole,
    remove_if_there,
    sync_directory,
    sync_file,
)
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.model.queue_index import QueueIndex
from warrenmq.store.model.runs import add_run
from warrenmq.store.records.checkpoint import (
    CHECKPOINT_NAME,
    PREVIOUS_NAME,
    Checkpoint,
    CheckpointQueue,
    decode_checkpoint,
)


@dataclass
class WrittenStore:
    """The figures of a finished data directory.

    `message_bytes` counts a shared content once for each queue.
    """

    directory: Path
    messages: int = 0
    message_bytes: int = 0
    skipped_transient: int = 0
    contents: int = 0


class StoreWriter:
    """The unfinished store in `work`, which becomes `directory`."""

    def __init__(self, directory: Path, work: Path, plan: StorePlan) -> None:
        self.directory = directory
        self.work_directory = work
        self.plan = plan

    @classmethod
    def create(
        cls,
        directory: Path,
        definitions: Definitions,
        queues: Sequence[QueueExtent],
        shared_contents: Mapping[int, int] | None = None,
        part_messages: int = 0,
        settings: WriterSettings | None = None,
    ) -> Self:
        """Begin a store for `directory`, which is missing or empty, and plan its parts.

        `store_plan.plan_parts` explains the arguments. Raises ToolError, also when an unfinished
        store exists; nothing of the new one is left then.
        """
        settings = settings or WriterSettings()
        _check(definitions, queues)
        try:
            parts = plan_parts(queues, shared_contents or {}, settings, part_messages)
        except ValueError as error:
            raise ToolError(str(error)) from None
        plan = StorePlan(format=PLAN_FORMAT, settings=settings, queues=list(queues), parts=parts)
        work = begin_new(directory)
        try:
            for vhost in definitions.vhosts:
                path = work / DATA_NAME / VHOSTS_PATH / str(vhost.id)
                make_directories(path)
                files = LocalFileSystem(path)
                try:
                    # The builder writes the store id and creates the directories.
                    StoreBuilder(files)
                finally:
                    files.release()
            make_directories(work / PARTS_NAME)
            _write_definitions(work / DATA_NAME / DATABASE_NAME, definitions)
            sync_directory(work / DATA_NAME)
            # Write the plan last: a store without a plan was not begun.
            root = LocalFileSystem(work)
            try:
                put_whole(root, PLAN_NAME, msgspec.json.encode(plan))
            finally:
                root.release()
        except BaseException as error:
            remove_unfinished(work)
            if isinstance(error, OSError):
                raise ToolError(f"{directory} cannot be made: {error}") from error
            raise
        return cls(directory, work, plan)

    @classmethod
    def resume(cls, directory: Path) -> Self:
        """Resume the store that `create` began for `directory`. ToolError when there is none."""
        work = incomplete_path(directory)
        return cls(directory, work, read_plan(work))

    def discard(self) -> None:
        """Remove the unfinished store."""
        remove_unfinished(self.work_directory)

    def finish(
        self,
        manifests: Iterable[PartManifest],
        before_rename: Callable[[Path], object] = lambda data: None,
    ) -> WrittenStore:
        """Join the parts and put the store in place, durably. After a ToolError it can be retried.

        `before_rename` is called with the whole directory before it gets its name; an error that it
        raises stops `finish` there."""
        chosen = list(manifests)
        result = WrittenStore(self.directory)
        for manifest in chosen:
            result.messages += manifest.messages
            result.message_bytes += manifest.message_bytes
            result.skipped_transient += manifest.skipped_transient
            result.contents += manifest.contents
        data = self.work_directory / DATA_NAME
        try:
            # Without `data`, an earlier try has put the store in place, and only `work` must be
            # removed.
            if data.exists():
                chosen = self._one_for_each_part(chosen)
                for vhost in sorted((data / VHOSTS_PATH).iterdir()):
                    self._finish_vhost(
                        vhost, [m for m in chosen if str(m.part.vhost_id) == vhost.name]
                    )
                before_rename(data)
                put_in_place(data, self.directory)
            elif not self.directory.is_dir():
                raise ToolError(
                    f"{data} is missing: something has removed it; remove {self.work_directory} to begin anew"
                )
        except OSError as error:
            raise ToolError(f"{self.directory} cannot be finished: {error}") from error
        remove_unfinished(self.work_directory)
        return result

    def _one_for_each_part(self, manifests: Iterable[PartManifest]) -> list[PartManifest]:
        chosen: dict[str, PartManifest] = {}
        planned = {part.name: part for part in self.plan.parts}
        for manifest in manifests:
            name = manifest.part.name
            if planned.get(name) != manifest.part:
                raise ToolError(f"part {name} is not of this plan")
            if name in chosen:
                raise ToolError(f"part {name} has two manifests")
            chosen[name] = manifest
        missing = [name for name in planned if name not in chosen]
        if missing:
            raise ToolError(
                f"{len(missing)} of {len(planned)} parts are missing: {', '.join(missing[:5])}"
            )
        for vhost_id in {part.vhost_id for part in self.plan.parts}:
            found = [manifest for manifest in chosen.values() if manifest.part.vhost_id == vhost_id]
            shared = [sum(m.shared_references for m in found), sum(m.shared_id_sum for m in found)]
            used = [sum(m.used_references for m in found), sum(m.used_id_sum for m in found)]
            if shared != used:
                raise ToolError(
                    f"vhost id {vhost_id}: shared contents have {shared[0]} references, "
                    f"and {used[0]} messages refer to such contents, or not to the same ones"
                )
        return [chosen[name] for name in planned]

    def _finish_vhost(self, path: Path, manifests: list[PartManifest]) -> None:
        files = LocalFileSystem(path)
        try:
            store_id = load_store_id(files)
            # Remove the files of an earlier try that failed.
            for name in files.list_names(JOURNAL_DIRECTORY):
                files.unlink(f"{JOURNAL_DIRECTORY}/{name}")
            for name in (CHECKPOINT_NAME, PREVIOUS_NAME):
                remove_if_there(files, name)
            builder = StoreBuilder(files, store_settings(self.plan.settings))
            checkpoints: list[Checkpoint] = []
            moved_to: set[str] = {QUEUES_NAME, PERSISTENT_NAME}
            for manifest in manifests:
                part = LocalFileSystem(self.work_directory / PARTS_NAME / manifest.directory)
                try:
                    checkpoint = decode_checkpoint(read_whole(part, CHECKPOINT_NAME), store_id)
                finally:
                    part.release()
                if checkpoint is None:
                    raise ToolError(f"part {manifest.part.name} is damaged")
                checkpoints.append(checkpoint)
            content_files = _content_files(checkpoints, builder)
            ledgers = self._logs(int(path.name), manifests, checkpoints, builder)
            for manifest, checkpoint in zip(manifests, checkpoints, strict=True):
                source = self.work_directory / PARTS_NAME / manifest.directory
                for name in _paths_in(checkpoint):
                    directory = name.rpartition("/")[0]
                    if directory not in moved_to:
                        files.make_directories(directory)
                        moved_to.add(directory)
                    _move(source / name, path / name)
            for directory in moved_to:
                files.sync_directory(directory)
            next_id = max((manifest.part.end_content_id for manifest in manifests), default=1)
            builder.adopt(ledgers, content_files, next_id)
            builder.finish(is_clean=True)
        finally:
            files.release()

    def _logs(
        self,
        vhost_id: int,
        manifests: list[PartManifest],
        checkpoints: list[Checkpoint],
        builder: StoreBuilder,
    ) -> list[QueueLedger]:
        ledgers: list[QueueLedger] = []
        for extent in self.plan.queues:
            if extent.vhost_id != vhost_id:
                continue
            ledger = QueueLedger(extent.queue_id)
            index = builder.new_index(extent.queue_id)
            add_run(index.settled, 0, extent.first_seq - 1)
            upto = extent.first_seq
            for manifest, checkpoint in zip(manifests, checkpoints, strict=True):
                if manifest.part.queue_id == extent.queue_id and manifest.messages:
                    upto = _add_part(index, upto, checkpoint.queues[0])
            ledger.next_seq = max(extent.next_seq, upto)
            ledger.indexed_upto = ledger.next_seq
            ledger.delivered_upto = extent.delivered_upto
            if ledger.next_seq > upto:
                add_run(index.settled, upto, ledger.next_seq - 1)
            if index.segments:
                ledger.index = index
            ledgers.append(ledger)
        return ledgers


def _add_part(index: QueueIndex, upto: int, row: CheckpointQueue) -> int:
    """Add a part's segments to the index, which ends at seq id `upto`; returns its new end."""
    first = row.segments[0].number * index.segment_entries
    if first > upto:
        add_run(index.settled, upto, first - 1)
    for run_first, run_last in row.settled:
        # A part's index takes all seq ids before the part for settled.
        if run_last >= upto:
            add_run(index.settled, max(run_first, upto), run_last)
    index.segments += row.segments
    return row.indexed_upto


def _content_files(checkpoints: list[Checkpoint], builder: StoreBuilder) -> list[ContentFile]:
    files: list[ContentFile] = []
    for checkpoint in checkpoints:
        for row in checkpoint.content_rows:
            number = number_in_row(row)
            file = ContentFile(number, builder.path_of_content_file(number), 0)
            if not file.restore(row):
                raise ToolError(f"a part's row of content file {number} does not add up")
            files.append(file)
    return sorted(files, key=lambda file: file.first_id)


def _paths_in(checkpoint: Checkpoint) -> list[str]:
    """Paths of the files that a part's checkpoint names."""
    paths = [f"{PERSISTENT_NAME}/{number_in_row(row)}.rdq" for row in checkpoint.content_rows]
    for queue in checkpoint.queues:
        paths += [
            f"{QUEUES_NAME}/{queue.queue_id}/{segment.number}.idx" for segment in queue.segments
        ]
    return paths


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except FileNotFoundError:
        # An earlier try that failed has moved the file already.
        if not target.exists():
            raise


def _write_definitions(path: Path, definitions: Definitions) -> None:
    metadata = SqliteMetadata(path)
    try:
        metadata.apply(as_changes(definitions))
    finally:
        metadata.close()
    sync_file(path)


def _check(definitions: Definitions, queues: Sequence[QueueExtent]) -> None:
    """Raise ToolError when definitions contradict each other or lack one of `queues`."""
    vhosts = {vhost.name: vhost.id for vhost in definitions.vhosts}
    if not vhosts:
        raise ToolError("the definitions name no vhost")
    if len(vhosts) < len(definitions.vhosts) or len(set(vhosts.values())) < len(vhosts):
        raise ToolError("two vhosts have the same name or id")
    defined: set[tuple[int, int]] = set()
    names: set[tuple[bytes, bytes]] = set()
    for queue in definitions.queues:
        if queue.vhost not in vhosts or queue.id < 1:
            raise ToolError(f"queue {queue.name!r} has no vhost, or no id")
        defined.add((vhosts[queue.vhost], queue.id))
        names.add((queue.vhost, queue.name))
    defined |= {(vhosts[part.vhost], part.id) for part in definitions.queue_parts}
    rows = len(definitions.queues) + len(definitions.queue_parts)
    if len(defined) < rows or len(names) < len(definitions.queues):
        raise ToolError("two queues of a vhost have the same name or id")
    for extent in queues:
        if (extent.vhost_id, extent.queue_id) not in defined:
            raise ToolError(
                f"queue id {extent.queue_id} of vhost id {extent.vhost_id} is not defined"
            )
