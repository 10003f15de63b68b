"""The engine of a job: its tasks run in Spark, or on the cores of this machine without a JVM.

Both engines run the same task functions and give the same result; they differ only in the machines
that run the tasks. Decision 037 says when a job takes which.
"""

import contextlib
import importlib.util
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, get_args

from warrenmq.pipeline.progress import Progress, Step
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.sharing import LocalSharing, Sharing
from warrenmq.spark.local.java import SparkUnavailableError, require_packages, require_spark
from warrenmq.spark.local.session import CONNECT_SCHEME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine = Literal["auto", "spark", "local"]

_log: Final = logging.getLogger("warren.pipeline")


def is_local(
    engine: Engine, master: str | None = None, given: "SparkSession | None" = None
) -> bool:
    """Whether a job runs without Spark.

    `auto` takes Spark when the caller names one (`master`, `given`) and wherever Spark can run.
    JobError for an unknown engine, and for `local` together with a named Spark.
    """
    is_named = master is not None or given is not None
    if engine not in get_args(Engine):
        raise JobError(f"unknown engine '{engine}'; there are: {', '.join(get_args(Engine))}")
    if engine == "local" and is_named:
        raise JobError(
            "the engine local uses no Spark: omit the Spark master, or choose the engine spark"
        )
    if engine != "auto":
        return engine == "local"
    return not is_named and bool(_why_not_spark())


def require_engine(
    engine: Engine, master: str | None = None, given: "SparkSession | None" = None
) -> None:
    """Raise every error that choosing an engine could raise.

    This includes the error that a package or program that the engine needs is not installed. Every
    job calls it first: nobody should wait for a broker to learn that Java is missing. Where `auto`
    finds no Spark, one line of the log says what is missing.
    """
    if is_local(engine, master, given):
        require_modules("pyarrow", "numpy")
        if engine == "auto":
            _log.warning("the job runs on this machine, without Spark: %s", _why_not_spark())
    elif given is None and (master or "").startswith(CONNECT_SCHEME):
        require_packages()
    elif given is None:
        require_spark()


def _why_not_spark() -> str:
    """Why Spark cannot run on this machine, in one line; "" if it can."""
    try:
        require_spark()
    except SparkUnavailableError as error:
        return str(error)
    return ""


def require_modules(*names: str) -> None:
    """JobError unless these modules of the extra `jobs` are installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise JobError(f"{name} is not installed: pip install 'warrenmq[jobs]'")


@contextlib.contextmanager
def sharing_for(
    job: str,
    engine: Engine,
    master: str | None,
    given: "SparkSession | None",
    progress: Progress,
) -> Iterator[Sharing]:
    """Yield the engine for a job (see `is_local`).

    Call `require_engine` first. Raises the errors of `starting_spark`.
    """
    if is_local(engine, master, given):
        with contextlib.closing(LocalSharing()) as local:
            yield local
        return
    from warrenmq.pipeline.spark_run import starting_spark

    progress.show(Step("starting Spark"))
    with starting_spark(job, master, given) as spark:
        yield spark.wait()
