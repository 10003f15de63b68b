"""Spark for a job: a session, and its errors as one line."""

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.sharing import ContextSharing, ServerSharing, Sharing
from warrenmq.spark import session
from warrenmq.spark.java import require_packages, require_spark
from warrenmq.spark.local_session import CONNECT_SCHEME, light_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CALL: Final = re.compile(r"An error occurred while calling \S+\.\n: (?:[\w.$]+: )?")
_ERROR_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Of a local context that a job has for itself.
_LOCAL_SETTINGS: Final = {"spark.python.daemon.module": "warrenmq.pipeline.task_daemon"}
# Set once, by a program of one job.
_ends_with_job = False
# False hides Spark's log of failed tasks: the job's error says the same without the stacks.
_shows_logs = False
# Our own errors reach the driver inside the traceback of a Python worker.
_OURS: Final = re.compile(r"\bwarren\.[\w.]+(?:Error|Exception): (.+)")


@contextlib.contextmanager
def spark_for(
    job: str, master: str | None, given: "SparkSession | None" = None
) -> Iterator["SparkSession"]:
    """The session a job runs in: `given`, or the active one, or a new one at `master` (None: local); it is left running.

    What a job sets on it does not touch the caller's: it is a session of its own in the same Spark. SparkUnavailableError
    when Spark or Java is missing; what Spark raises inside the block comes out as JobError.
    """
    if given is None:
        require_packages()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _without_interrupts():
            spark = (
                given
                if given is not None
                else session(f"warren {job}", master, tells_failures=_tells_failures())
            )
        own = spark.newSession()
        # Times are told apart from dates and partition values in one time zone, whatever the machine's is; and names of
        # partitions are names also when they look like numbers.
        own.conf.set("spark.sql.session.timeZone", "UTC")
        own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        with _without_logs():
            yield own
    except (PySparkException, Py4JError) as error:
        raise JobError(one_line(str(error))) from error


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits: PySpark that is interrupted while it starts a JVM leaves that behind, and it never ends."""
    if threading.current_thread() is not threading.main_thread():
        # It does not come here.
        yield
        return
    has_come = False

    def note(_number: int, _frame: object) -> None:
        nonlocal has_come
        has_come = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        # PySpark may have put its own one there, which ends what Spark does.
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
    if has_come:
        raise KeyboardInterrupt


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


class StartingSpark:
    """Spark that may not be there yet, and that shares out tasks."""

    def __init__(self) -> None:
        self._sharing: Future[Sharing] = Future()
        self._begun_s = time.monotonic()
        # How long it took to start; known when it has.
        self.seconds = 0.0

    def wait(self) -> Sharing:
        """Spark, when it is there; what made it fail is raised."""
        return self._sharing.result()

    def fill(self, make: Callable[[], Sharing]) -> None:
        """Start it."""
        try:
            sharing = make()
        except BaseException as error:
            self._sharing.set_exception(error)
        else:
            self.seconds = time.monotonic() - self._begun_s
            self._sharing.set_result(sharing)


@contextlib.contextmanager
def starting_spark(
    job: str, master: str | None, given: "SparkSession | None" = None
) -> Iterator[StartingSpark]:
    """Spark for a job that needs no SQL: of `given`, or the active one, or a new one at `master`, which is stopped at the end.

    It starts beside what the block does; a Spark Connect server is asked for its session before. SparkUnavailableError when
    Spark or Java is missing; what Spark raises inside the block comes out as JobError.
    """
    is_for_server = given is None and master is not None and master.startswith(CONNECT_SCHEME)
    if given is None and not is_for_server:
        require_spark()
    require_packages()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql.utils import is_remote

    spark = StartingSpark()
    if is_for_server or is_remote():
        with spark_for(job, master, given) as session:
            spark.fill(lambda: ServerSharing(session))
            yield spark
        return
    # The executor leaves the stack before what its thread has put there.
    with contextlib.ExitStack() as stack:
        if given is not None:
            context = given.sparkContext
            spark.fill(lambda: ContextSharing(context))
        else:
            made = light_context(
                f"warren {job}", master, _LOCAL_SETTINGS, not _ends_with_job, _tells_failures()
            )
            thread = stack.enter_context(ThreadPoolExecutor(1, "warren-spark"))
            thread.submit(spark.fill, lambda: ContextSharing(stack.enter_context(made)))
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            raise JobError(one_line(str(error))) from error


def program_ends_with_job(shows_logs: bool = False) -> None:
    """Say that nobody wants Spark after the job: it ends with the program, and need not be stopped before. `shows_logs`: what
    Spark logs of tasks that fail is wanted."""
    global _ends_with_job, _shows_logs
    _ends_with_job = True
    _shows_logs = shows_logs


def _tells_failures() -> bool:
    """Does Spark log what it raises? A command shows that itself, in one line; others may want it."""
    return _shows_logs or not _ends_with_job


def one_line(text: str) -> str:
    """The line of an error of Spark that says what happened: ours where there is one in it, else the first."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    # The first line of what Java raised says only which call it was.
    text = _CALL.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark failed without a word"
