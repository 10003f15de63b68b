"""`rebuild_index`: writes a new data directory with whole indexes for lost or damaged segments.

The position of a message is in the index of its queue, and was in the journal before; a large
message is in a content file, which names the positions that shared it. So positions missing in an
index are searched for in all remaining journal files and in the content files
(`offline/salvage.py`), and the result lists the seq ids for which nothing was found.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from warrenmq.offline.backup_files import begin_new, must_be_outside, put_in_place
from warrenmq.offline.data_directory import VHOSTS_PATH, opened
from warrenmq.offline.salvage import (
    SalvagedQueue,
    SalvageResult,
    begin,
    finish,
    salvage_vhost,
)
from warrenmq.offline.sizes import tree_bytes
from warrenmq.pipeline.engine import Engine, require_engine, sharing_for
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobResult
from warrenmq.pipeline.tasks import TaskRunner
from warrenmq.pipeline.unfinished import absolute, unfinished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class RebuildIndexResult(JobResult):
    """The contents of the new directory, and the losses.

    Of `messages`, `found_again` had lost their position in an index; `lost` messages could not be
    found. `losses` are lines for people; `queues` has the counts of each queue and the seq ids for
    which nothing was found.
    """

    directory: Path
    source: Path
    messages: int = 0
    found_again: int = 0
    lost: int = 0
    queues: list[SalvagedQueue] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when something could not be recovered."""
        return FOUND_EXIT if self.losses else OK_EXIT

    def lines(self) -> list[str]:
        """The losses and notes, the counts of each affected queue, and the totals."""
        rows = [f"lost: {line}" for line in self.losses] + [f"note: {line}" for line in self.notes]
        for queue in self.queues:
            if queue.lost or queue.found_again:
                runs = ", ".join(f"{first}-{last}" for first, last in queue.missing[:10])
                more = (
                    f" and {len(queue.missing) - 10} more runs" if len(queue.missing) > 10 else ""
                )
                gone = f"; {queue.lost} lost, among the seq ids {runs}{more}" if queue.lost else ""
                rows.append(
                    f"vhost '{queue.vhost}', queue '{queue.name}': {queue.messages} messages, "
                    f"{queue.found_again} found again{gone}"
                )
        rows.append(
            f"{self.messages} messages are in {self.directory}; {self.lost} are known to be lost"
        )
        return rows


@dataclass(frozen=True)
class VhostTask:
    """A task that salvages the store of one vhost into `target`."""

    source: Path
    target: Path
    vhost_id: int


class _WrittenBytes:
    """Shows the bytes below `target` instead of the number of finished tasks."""

    def __init__(self, target: Path, progress: Progress) -> None:
        self._target = target
        self._progress = progress

    def show(self, step: Step) -> None:
        """See Progress."""
        self._progress.show(Step(step.name, tree_bytes(self._target), None, "bytes"))


def rebuild_index(
    source: Path,
    directory: Path,
    *,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> RebuildIndexResult:
    """Make `directory`, which must be missing or empty, from a stopped node's data directory.

    `source` is only read. A task salvages a whole vhost, because journal and definitions must be
    read as wholes; an interrupted rebuild starts from the beginning. Raises ToolError and JobError,
    and leaves nothing at `directory` then.
    """
    require_engine(engine, master, spark)
    progress = progress or Silent()
    directory = absolute(directory)
    source = absolute(source)
    must_be_outside(source, directory)
    with unfinished(directory, "rebuild", {"source": str(source.resolve())}) as begun:
        if begun.result is not None:
            queues = [SalvagedQueue(**queue) for queue in begun.result["queues"]]
            places = {"directory": directory, "source": source, "queues": queues}
            return RebuildIndexResult(**(begun.result | places))
        begun.store_facts()
        results = begun.path / "vhosts"
        for rest in (begun.incomplete, results):
            shutil.rmtree(rest, ignore_errors=True)
        try:
            target = begin_new(directory) / "data"
            with opened(source) as opened_source:
                begin(opened_source, target)
                tasks = {
                    str(vhost.id): VhostTask(source, target, vhost.id)
                    for vhost in opened_source.vhosts
                }
                with sharing_for("rebuild-index", engine, master, spark, progress) as sharing:
                    runner = TaskRunner(sharing, _WrittenBytes(target, progress))
                    found = runner.run(results, tasks, salvage_one, SalvageResult, "rebuild")
                result = _result(directory, source, finish(opened_source, target, found.values()))
            begun.keep_result(result)
            put_in_place(target, directory)
        except BaseException:
            begun.drop()
            raise
        finally:
            shutil.rmtree(begun.incomplete, ignore_errors=True)
        return result


def salvage_one(task: VhostTask) -> SalvageResult:
    """Salvage the vhost of `task`; runs in a worker."""
    # An earlier attempt at this task may have died and left files.
    shutil.rmtree(task.target / VHOSTS_PATH / str(task.vhost_id), ignore_errors=True)
    with opened(task.source) as directory:
        (vhost,) = [vhost for vhost in directory.vhosts if vhost.id == task.vhost_id]
        return salvage_vhost(directory, vhost, task.target)


def _result(directory: Path, source: Path, found: SalvageResult) -> RebuildIndexResult:
    return RebuildIndexResult(
        directory=directory,
        source=source,
        messages=found.messages,
        found_again=sum(queue.found_again for queue in found.queues),
        lost=found.lost,
        queues=found.queues,
        losses=found.losses,
        notes=found.notes,
    )
