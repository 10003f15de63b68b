"""`rebuild_index`: writes a new data directory with whole indexes for lost or damaged segments.

The position of a message is in the index of its queue, and was in the journal before; a large
message is in a content file, which names the positions that shared it. So positions missing in an
index are searched for in all remaining journal files and in the content files
(`offline/salvage.py`), and the result lists the seq ids for which nothing was found.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from warrenmq.offline.backup_files import begin_new, must_be_outside, put_in_place
from warrenmq.offline.salvage import SalvagedQueue, SalvageResult, salvage
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobResult
from warrenmq.pipeline.unfinished import absolute, unfinished


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


def rebuild_index(
    source: Path, directory: Path, *, progress: Progress | None = None
) -> RebuildIndexResult:
    """Make `directory`, which must be missing or empty, from a stopped node's data directory.

    `source` is only read. One process does all the work, and an interrupted rebuild starts from the
    beginning, because journal and definitions must be read as wholes. Raises ToolError and leaves
    nothing at `directory`.
    """
    progress = progress or Silent()
    directory = absolute(directory)
    must_be_outside(source, directory)
    done = 0

    def on_bytes(size: int) -> None:
        nonlocal done
        done += size
        progress.show(Step("rebuild", done, None, "bytes"))

    with unfinished(directory, "rebuild", {"source": str(source.resolve())}) as begun:
        if begun.result is not None:
            queues = [SalvagedQueue(**queue) for queue in begun.result["queues"]]
            places = {"directory": directory, "source": source, "queues": queues}
            return RebuildIndexResult(**(begun.result | places))
        begun.store_facts()
        shutil.rmtree(begun.incomplete, ignore_errors=True)
        try:
            found = salvage(source, begin_new(directory) / "data", on_bytes)
            result = _result(directory, source, found)
            begun.keep_result(result)
            put_in_place(begun.incomplete / "data", directory)
        except BaseException:
            begun.drop()
            raise
        finally:
            shutil.rmtree(begun.incomplete, ignore_errors=True)
        return result


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
