"""Spark for a job: a session, and its errors as one line."""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from warren.pipeline.result import JobError
from warren.spark import session
from warren.spark.local_session import CONNECT_SCHEME, light_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_CALL: Final = re.compile(r"An error occurred while calling \S+\.\n: (?:[\w.$]+: )?")
_ERROR_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Of a local context that a job has for itself.
_LOCAL_SETTINGS: Final = {"spark.python.daemon.module": "warren.pipeline.task_daemon"}
# Set once, by a program of one job.
_ends_with_job = False
# Our own errors reach the driver inside the traceback of a Python worker.
_OURS: Final = re.compile(r"\bwarren\.[\w.]+(?:Error|Exception): (.+)")


@contextlib.contextmanager
def spark_for(job: str, master: str | None, given: "SparkSession | None" = None) -> Iterator["SparkSession"]:
    """The session a job runs in: `given`, or the active one, or a new one at `master` (None: local); it is left running.

    What a job sets on it does not touch the caller's: it is a session of its own in the same Spark. SparkUnavailableError
    when Spark or Java is missing; what Spark raises inside the block comes out as JobError.
    """
    spark = given if given is not None else session(f"warren {job}", master)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    own = spark.newSession()
    # Times are told apart from dates and partition values in one time zone, whatever the machine's is; and names of
    # partitions are names also when they look like numbers.
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        with _without_logs():
            yield own
    except (PySparkException, Py4JError) as error:
        raise JobError(one_line(str(error))) from error


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """PySpark writes errors of SQL to standard error, with Java's stack, before it raises them."""
    from pyspark.logger import PySparkLogger

    # Made by PySpark's own function, since it calls them in a way of its own.
    loggers = [PySparkLogger.getLogger(name) for name in _ERROR_LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, is_disabled in zip(loggers, before, strict=True):
            logger.disabled = is_disabled


@contextlib.contextmanager
def context_for(
    job: str, master: str | None, given: "SparkSession | None" = None
) -> Iterator["SparkContext"]:
    """Spark for a job that needs no SQL: of `given`, or the active one, or a new one at `master`, which is stopped at the end.

    What Spark raises inside the block, and this package's own errors, come out as JobError.
    """
    from pyspark.sql.utils import is_remote

    if is_remote() or (given is None and master is not None and master.startswith(CONNECT_SCHEME)):
        raise JobError(
            f"{job} cannot run on a Spark Connect server, which shares out no tasks: name a cluster as master"
        )
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with contextlib.ExitStack() as stack:
        if given is not None:
            context = given.sparkContext
        else:
            context = stack.enter_context(
                light_context(f"warren {job}", master, _LOCAL_SETTINGS, not _ends_with_job)
            )
        try:
            yield context
        except (PySparkException, Py4JError) as error:
            raise JobError(one_line(str(error))) from error


def program_ends_with_job() -> None:
    """Say that nobody wants Spark after the job: it ends with the program, and need not be stopped before."""
    global _ends_with_job
    _ends_with_job = True


def one_line(text: str) -> str:
    """The line of an error of Spark that says what happened: ours where there is one in it, else the first."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    # The first line of what Java raised says only which call it was.
    text = _CALL.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark failed without a word"
