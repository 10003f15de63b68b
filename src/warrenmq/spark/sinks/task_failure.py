"""How a task of a sink fails permanently: it returns the error to the driver instead of raising.

Spark repeats a task that raises: four times in a local session, each time in a new worker and from
the first row on. Spark has no exception for "do not repeat this". A permanent failure is therefore
the result of the task, and the driver raises it before anything is committed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from warrenmq.spark.retry import BrokerAwayError, SourceError


@dataclass(frozen=True)
class TaskFailed(WriterCommitMessage):
    """A permanent failure of a task, returned to the driver; Spark repeats a task that raises."""

    text: str


def unless_permanent(work: Callable[[], WriterCommitMessage]) -> WriterCommitMessage:
    """Run `work` of a sink's task; return a permanent failure as a message.

    A transient failure is raised, so that Spark repeats the task.
    """
    try:
        return work()
    except BrokerAwayError:
        raise
    except SourceError as error:
        return TaskFailed(str(error))


def raise_failures(parts: Sequence[object]) -> None:
    """Raise SourceError when a task failed permanently; the driver calls this before the commit."""
    for part in parts:
        if isinstance(part, TaskFailed):
            raise SourceError(part.text)
