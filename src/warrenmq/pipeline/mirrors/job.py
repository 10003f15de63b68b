"""`compare_mirrors`: compares the copies of a mirrored queue, message by message.

The copies are those of a running cluster, of which each node makes a snapshot (live.py says in
which order), or directories: of stopped nodes, or backups of them. Tasks compare stretches of seq
ids (stretches.py, comparing.py). All copies are compared with one, the reference: the master, or of
directories the copy that is ahead of all others.

A live queue moves on between two snapshots. What a mirror seems to lack, or to have too much, is
therefore looked at again in a second round of snapshots. Only a difference that stays is one: a
seq id means one message for ever, and a message that has left a queue never comes back.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warrenmq.admin.client.client import RETRY_TIMEOUT_S
from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.broker import address_of, must_be_reachable
from warrenmq.pipeline.engine import Engine, require_engine, require_modules, sharing_for
from warrenmq.pipeline.mirrors.live import PURPOSE, LiveQueue, Snapshots
from warrenmq.pipeline.mirrors.result import (
    AWAY,
    IN_SYNC,
    MASTER,
    MIRROR,
    NOT_IN_SYNC,
    SHOWN_MAX,
    UNKNOWN,
    CompareMirrorsResult,
    CopyFigures,
)
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import JobError, must_have_parent
from warrenmq.pipeline.tasks import TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.pipeline.mirrors.comparison import Compared, Comparison
    from warrenmq.pipeline.mirrors.copies import QueueCopy
    from warrenmq.pipeline.mirrors.stretches import Windows


def compare_mirrors(
    queue: str,
    *,
    uri: str | None = None,
    directories: Sequence[str | Path] = (),
    vhost: str | None = None,
    snapshots: str | Path | None = None,
    output: str | Path | None = None,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> CompareMirrorsResult:
    """Compare the copies of the mirrored queue `queue`; nothing in them is changed.

    `uri` names a node of the cluster, as an administrator, and the vhost. `directories` instead
    names two or more data directories of stopped nodes, or backups of them, and `vhost` (default
    "/") the vhost in them. Snapshots and the files of the job go below `snapshots` (default: the
    directory for temporary files), which all nodes and Spark's workers must see. The table of
    differences goes to the Parquet file `output`. JobError when no two copies can be compared, and
    ToolError when a directory cannot be read.
    """
    progress = progress or Silent()
    if (uri is None) != bool(directories):
        raise JobError("name the URI of a node, or the directories of the copies: one of them")
    if uri is not None and vhost is not None:
        raise JobError("the URI names the vhost: omit the other one")
    if len(directories) == 1:
        raise JobError("one directory has one copy: name two or more")
    if len({Path(each).resolve() for each in directories}) < len(directories):
        raise JobError("a directory is named twice")
    if snapshots is not None and not Path(snapshots).is_dir():
        raise JobError(f"there is no directory {snapshots}")
    if output is not None:
        must_have_parent(Path(output))
    address = None if uri is None else address_of(uri)
    require_engine(engine, master, spark)
    require_modules("pyarrow", "numpy")
    live = None
    if uri is not None:
        must_be_reachable(uri, PURPOSE, retry_timeout_s)
        live = LiveQueue(uri, queue, snapshots, progress)
        live.must_be_mirrored()
    in_vhost = vhost or "/" if address is None else address.vhost
    with (
        tempfile.TemporaryDirectory(prefix="warren-compare-", dir=snapshots) as scratch,
        sharing_for("compare-mirrors", engine, master, spark, progress) as sharing,
    ):
        job = _Job(in_vhost, queue, Path(scratch), TaskRunner(sharing, progress), progress)
        target = Path(scratch) / "differences.parquet" if output is None else Path(output)
        if live is None:
            found = job.directories([Path(each).absolute() for each in directories], target)
        else:
            found = job.live(live, target)
        found.table = None if output is None else target
        return found


class _Job:
    """The work on one queue, below the directory `scratch`."""

    def __init__(
        self, vhost: str, queue: str, scratch: Path, runner: TaskRunner, progress: Progress
    ) -> None:
        self._vhost = vhost
        self._queue = queue
        self._scratch = scratch
        self._runner = runner
        self._progress = progress

    # -- directories -------------------------------------------------------------------------------

    def directories(self, paths: list[Path], target: Path) -> CompareMirrorsResult:
        """Compare the copies in directories."""
        from warrenmq.pipeline.mirrors.comparison import Compared, Comparison

        copies = [self._opened(path) for path in paths]
        names = Counter(copy.name for copy in copies)
        copies = [
            # Backups do not know their nodes, and may have the same name in other places.
            replace(copy, name=str(copy.path)) if names[copy.name] > 1 else copy
            for copy in copies
        ]
        self._must_be_one_queue(copies)
        # The copy that is ahead is the reference: the others may be behind it, and not it behind
        # one of them.
        copies.sort(key=lambda copy: (copy.epoch, copy.next_seq, copy.messages), reverse=True)
        if copies[0].epoch == 0:
            raise JobError(f"queue '{self._queue}' in vhost '{self._vhost}' was never mirrored")
        complete = [True] * (len(copies) - 1)
        compared = Compared(copies[0], copies[1:], complete, False)
        comparison = Comparison(compared, self._runner, self._scratch / "copies")
        comparison.run("comparing")
        comparison.forget_before_first()
        return self._result(comparison, [(UNKNOWN, UNKNOWN)] * len(copies), target, 0, 0)

    # -- a running cluster -------------------------------------------------------------------------

    def live(self, queue: LiveQueue, target: Path) -> CompareMirrorsResult:
        """Compare the copies of a running cluster."""
        from warrenmq.pipeline.mirrors.comparison import Comparison

        with queue.snapshots() as taken:
            compared = self._compared(taken)
            comparison = Comparison(compared, self._runner, self._scratch / "first")
            comparison.run("comparing")
            doubtful, rounds = 0, 1
            windows = comparison.doubtful()
            if windows:
                rounds = 2
                doubtful = self._look_again(queue, taken, comparison, windows)
            shown = [
                (MASTER if each.is_master else MIRROR, IN_SYNC if each.is_in_sync else NOT_IN_SYNC)
                for each in taken.copies
            ]
            found = self._result(comparison, shown, target, doubtful, rounds)
        found.copies += [CopyFigures(node, MIRROR, AWAY) for node in taken.away]
        return found

    def _look_again(
        self, queue: LiveQueue, taken: Snapshots, first: "Comparison", windows: "Windows"
    ) -> int:
        """Let `first` keep the differences that stay; returns how many nobody can judge."""
        from warrenmq.pipeline.mirrors.comparing import MISSING
        from warrenmq.pipeline.mirrors.comparison import NO_ROWS, Comparison

        with queue.snapshots() as again:
            if not again.is_like(taken):
                # Another master may have settled what this one had, or the other way round.
                return sum(first.keep(NO_ROWS).values())
            copies = self._compared(again)
            second = Comparison(copies, self._runner, self._scratch / "second", windows)
            second.run("comparing again")
        # What the master has settled since was on its way to a mirror that had settled it already.
        # A message that a mirror lacks altogether is another matter: it left unjudged.
        return first.keep(second.rows)[MISSING]

    def _compared(self, taken: Snapshots) -> "Compared":
        from warrenmq.pipeline.mirrors.comparison import Compared

        copies = [self._opened(each.path, each.node) for each in taken.copies]
        self._must_be_one_queue(copies)
        complete = [each.is_in_sync for each in taken.copies[1:]]
        return Compared(copies[0], copies[1:], complete, True)

    # -- both --------------------------------------------------------------------------------------

    def _opened(self, path: Path, name: str = "") -> "QueueCopy":
        from warrenmq.pipeline.mirrors.copies import open_copy

        self._progress.show(Step("reading journals", note=name or str(path)))
        return open_copy(path, self._vhost, self._queue, name)

    def _must_be_one_queue(self, copies: "list[QueueCopy]") -> None:
        for copy in copies[1:]:
            if copy.birth != copies[0].birth:
                raise JobError(
                    f"{copy.path} and {copies[0].path} have different queues of the name "
                    f"'{self._queue}': one of them was deleted and declared again"
                )

    def _result(
        self,
        comparison: "Comparison",
        shown: list[tuple[str, str]],
        target: Path,
        doubtful: int,
        rounds: int,
    ) -> CompareMirrorsResult:
        import pyarrow.parquet as pq

        try:
            count = comparison.describe(self._vhost, self._queue, target)
        except OSError as error:
            raise ToolError(f"{target} cannot be written: {error}") from None
        file = pq.ParquetFile(target)
        kinds: Counter[str] = Counter()
        by_copy: Counter[str] = Counter()
        for batch in file.iter_batches(columns=["kind", "copy"]):
            kinds.update(batch.column("kind").to_pylist())
            by_copy.update(batch.column("copy").to_pylist())
        compared = comparison.copies
        copies = [
            CopyFigures(
                copy.name,
                role,
                state,
                copy.epoch,
                copy.next_seq,
                side.messages,
                side.bytes,
                side.compared,
                by_copy[copy.name],
                side.behind,
                side.ahead,
                side.lacks,
                side.marks,
            )
            for copy, side, (role, state) in zip(
                (compared.reference, *compared.others), comparison.figures, shown, strict=True
            )
        ]
        rows = list(_first(file, SHOWN_MAX))
        return CompareMirrorsResult(
            self._vhost, self._queue, copies, count, dict(kinds), doubtful, rounds, None, rows
        )


def _first(file: Any, count: int) -> Iterator[dict[str, Any]]:
    """The first rows of a Parquet file."""
    for batch in file.iter_batches(batch_size=count):
        yield from batch.to_pylist()
        return
