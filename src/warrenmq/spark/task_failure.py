"""How a task of a sink fails for good: it tells the driver instead of raising.

Spark repeats a task that raises, four times in a local session, each time in a new worker and from the first row on; it
has no exception for "do not repeat this". So what will not pass is the task's result, and the driver raises it before
anything is committed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from warrenmq.spark.retry import BrokerAwayError, SourceError


@dataclass(frozen=True)
class TaskFailed(WriterCommitMessage):
    """A permanent failure of a task, returned to the driver: Spark would repeat a task that raises."""

    text: str


def unless_permanent(work: Callable[[], WriterCommitMessage]) -> WriterCommitMessage:
    """Run a sink's task. Raises transient errors, which Spark retries, and returns permanent ones as a message."""
    try:
        return work()
    except BrokerAwayError:
        raise
    except SourceError as error:
        return TaskFailed(str(error))


def raise_failures(parts: Sequence[object]) -> None:
    """In the driver, before the commit: raises SourceError when a task has failed for good."""
    for part in parts:
        if isinstance(part, TaskFailed):
            raise SourceError(part.text)
