"""The directory of windowed metrics, Parquet or Delta, and the job's state beside it.

    TARGET/batch=12/*.parquet     the windows that were complete after batch 12 of the stream
    TARGET.checkpoint/job.json    what the windows are, and the id of the job
    TARGET.checkpoint/stream/     Spark's checkpoint: positions of the nodes, and open windows

Spark may write a batch again that it has not recorded as done, with the same number. In Parquet it
then replaces the batch's directory. In a Delta table the number is the transaction of the entry,
and an entry that is there is not made again.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from warrenmq.pipeline.result import JobError, must_have_parent
from warrenmq.pipeline.state_files import locked, read_state, write_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["parquet", "delta"]
_JOB: Final = "job.json"


class MetricsJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a directory of windows, which stay the same in all runs that add to it."""

    id: str
    format: Format
    window_s: int
    late_s: int
    metrics: list[str]


class MetricsDirectory:
    """The windows below `target`, and the state of their job."""

    def __init__(self, target: Path, checkpoint: Path) -> None:
        self.target = target
        self._checkpoint = checkpoint
        self.job: MetricsJob | None = None

    @property
    def stream(self) -> Path:
        """Spark's checkpoint."""
        return self._checkpoint / "stream"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process. JobError when another one has it."""
        must_have_parent(self.target)
        must_have_parent(self._checkpoint)
        with locked(self._checkpoint, f"another process is writing to {self.target}"):
            yield

    def open(self, wanted: MetricsJob) -> None:
        """Begin the job `wanted`, or resume it. JobError if the directory has other windows."""
        known = read_state(self._checkpoint / _JOB, MetricsJob)
        if known is None:
            if self.target.exists() and any(self.target.iterdir()):
                raise JobError(
                    f"{self.target} is not empty, and {self._checkpoint} does not know it"
                )
            write_state(self._checkpoint / _JOB, wanted)
            known = wanted
        elif msgspec.structs.replace(wanted, id=known.id) != known:
            metrics = ",".join(known.metrics) or "all"
            raise JobError(
                f"{self.target} has windows of {known.window_s} s, {known.late_s} s late, of the "
                f"metrics {metrics}, as {known.format}: other windows need another directory"
            )
        self.job = known

    def write(self, windows: "DataFrame", batch: int) -> None:
        """Store the windows of a batch, once however often it is called for the batch."""
        assert self.job is not None
        if self.job.format == "delta":
            write_delta(self.target, windows, self.job.id, batch)
        else:
            windows.write.mode("overwrite").parquet(str(self.target / f"batch={batch}"))


def write_delta(target: Path, windows: "DataFrame", application: str, batch: int) -> None:
    """Append the windows to a Delta table as the transaction `batch` of `application`, once.

    PySpark has no jars that write Delta tables, so the rows pass through this process.
    """
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import CommitProperties, Transaction

    try:
        if DeltaTable.is_deltatable(str(target)):
            last = DeltaTable(str(target)).transaction_version(application)
            if last is not None and last >= batch:
                return
        write_deltalake(
            str(target),
            windows.toArrow(),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(application, batch)]),
        )
    except DeltaError as error:
        raise JobError(f"the Delta table cannot be used: {' '.join(str(error).split())}") from error
