"""Spark for a job: a session or a context, with Spark's errors reduced to one line."""

import contextlib
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.sharing import ContextSharing, ServerSharing, Sharing
from warrenmq.spark import session
from warrenmq.spark.local.java import require_packages
from warrenmq.spark.local.session import CONNECT_SCHEME, light_context
from warrenmq.spark.reason import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ERROR_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Settings of a local Spark context that only this job uses.
_LOCAL_SETTINGS: Final = {"spark.python.daemon.module": "warrenmq.pipeline.task_daemon"}
# True when the process ends with its job, so that Spark need not be stopped before
# (`program_ends_with_job`).
_ends_with_job = False
# False hides Spark's log of failed tasks: the job's error says the same without the stacks.
_shows_logs = False


@contextlib.contextmanager
def spark_for(
    job: str, master: str | None, given: "SparkSession | None" = None
) -> Iterator["SparkSession"]:
    """Yield a session for the job: `given`, the active one, or a new one at `master` (None: local).

    The job gets its own session in the same Spark, so its settings do not touch the caller's. Spark
    is left running. SparkUnavailableError when Spark or Java is missing; errors of Spark inside the
    block become JobError.
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
                else session(
                    f"warren {job}", master, tells_failures=_tells_failures(), is_light=True
                )
            )
        own = spark.newSession()
        # Use one time zone, so that times differ from dates and partition values in the same way on
        # every machine. Keep partition names as text, also when they look like numbers.
        own.conf.set("spark.sql.session.timeZone", "UTC")
        own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        with _without_logs():
            yield own
    except (PySparkException, Py4JError) as error:
        raise JobError(reason_of(error)) from error


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C to the end: PySpark interrupted at its start leaves a JVM that never ends."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread receives Ctrl-C.
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
        # Restore only our own handler: PySpark may have installed one, which cancels Spark's jobs.
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
    if has_come:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Silence PySpark's log of SQL errors, which prints Java's stack before the error is raised."""
    from pyspark.logger import PySparkLogger

    # Get the loggers from PySpark's own function, which creates them as its own logger class.
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
    """Spark that a thread starts when it is wanted, and the engine that it provides then."""

    def __init__(self, make: Callable[[], Sharing], thread: Executor) -> None:
        self._make = make
        self._thread = thread
        self._sharing: Future[Sharing] | None = None
        # Seconds that Spark took to start; 0.0 until it runs.
        self.seconds = 0.0

    def begin(self) -> "Future[Sharing]":
        """Let the thread start Spark, unless it has done so."""
        if self._sharing is None:
            self._sharing = self._thread.submit(self._start)
        return self._sharing

    def wait(self) -> Sharing:
        """Wait until Spark runs and return its engine. Raises the error of a failed start."""
        return self.begin().result()

    def _start(self) -> Sharing:
        begun_s = time.monotonic()
        sharing = self._make()
        self.seconds = time.monotonic() - begun_s
        return sharing


@contextlib.contextmanager
def starting_spark(
    job: str, master: str | None, given: "SparkSession | None" = None
) -> Iterator[StartingSpark]:
    """Yield Spark for a job without SQL: of `given`, the active one, or a new one at `master`.

    Spark starts in a thread, while the block runs and not before it wants Spark; a session of a
    Spark Connect server is opened before the block. A new Spark is stopped at the end. Errors of
    Spark inside the block become JobError. Call `require_engine` first.
    """
    is_for_server = given is None and master is not None and master.startswith(CONNECT_SCHEME)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql.utils import is_remote

    # If the block ends while Spark still starts, leaving the executor waits for its thread, which
    # pushes the Spark context on the stack; the stack then leaves that context too.
    with contextlib.ExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(1, "warren-spark"))
        make: Callable[[], Sharing]
        if is_for_server or is_remote():
            session = stack.enter_context(spark_for(job, master, given))
            make = functools.partial(ServerSharing, session)
        elif given is not None:
            make = functools.partial(ContextSharing, given.sparkContext)
        else:
            made = light_context(
                f"warren {job}", master, _LOCAL_SETTINGS, not _ends_with_job, _tells_failures()
            )
            make = functools.partial(_entered, stack, made)
        try:
            yield StartingSpark(make, thread)
        except (PySparkException, Py4JError) as error:
            raise JobError(reason_of(error)) from error


def _entered(
    stack: contextlib.ExitStack, made: "contextlib.AbstractContextManager[SparkContext]"
) -> Sharing:
    return ContextSharing(stack.enter_context(made))


def program_ends_with_job(shows_logs: bool = False) -> None:
    """Declare that the process ends with its job, so Spark is not stopped before the process ends.

    `shows_logs`: Spark's log of failed tasks is shown.
    """
    global _ends_with_job, _shows_logs
    _ends_with_job = True
    _shows_logs = shows_logs


def _tells_failures() -> bool:
    """Whether Spark logs its errors: not in a command, which prints each as one line itself."""
    return _shows_logs or not _ends_with_job
