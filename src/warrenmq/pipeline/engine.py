"""The engine of a job: its tasks run in Spark, or on the cores of this machine without a JVM.

Starting a JVM costs tens of seconds of CPU before the first task, so a small job ends before Spark
would have started. Both engines run the same task functions and give the same result; they differ
only in the machines that run the tasks.
"""

import contextlib
import importlib.util
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
# `auto` takes Spark above this size of input, in bytes. Measured in
# docs/decisions/012-small-jobs-without-spark.md.
LOCAL_BYTES_MAX: Final = 2 << 30


def is_local(
    engine: Engine, size: int, master: str | None = None, given: "SparkSession | None" = None
) -> bool:
    """Whether a job with `size` bytes of input runs without Spark.

    `auto` takes Spark when the caller names one (`master`, `given`), or when the input is large and
    Spark is installed. JobError for an unknown engine, and for `local` together with a named Spark.
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
    if is_named:
        return False
    return size <= LOCAL_BYTES_MAX or not _can_have_spark()


def require_engine(
    engine: Engine, master: str | None = None, given: "SparkSession | None" = None
) -> None:
    """Raise every error that choosing an engine could raise, before the size of the input is known.

    This includes the error that a package or program that the engine needs is not installed. Every
    job calls it first: nobody should wait for a broker to learn that Java is missing.
    """
    if is_local(engine, 0, master, given):
        require_modules("pyarrow", "numpy")
    elif given is None and (master or "").startswith(CONNECT_SCHEME):
        require_packages()
    elif given is None:
        require_spark()


def _can_have_spark() -> bool:
    try:
        require_spark()
    except SparkUnavailableError:
        return False
    return True


def require_modules(*names: str) -> None:
    """JobError unless these modules of the extra `jobs` are installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise JobError(f"{name} is not installed: pip install 'warrenmq[jobs]'")


@contextlib.contextmanager
def sharing_for(
    job: str,
    engine: Engine,
    size: int,
    master: str | None,
    given: "SparkSession | None",
    progress: Progress,
) -> Iterator[Sharing]:
    """Yield the engine for a job with `size` bytes of input (see `is_local`).

    Call `require_engine` first. Raises the errors of `starting_spark`.
    """
    if is_local(engine, size, master, given):
        with contextlib.closing(LocalSharing()) as local:
            yield local
        return
    from warrenmq.pipeline.spark_run import starting_spark

    progress.show(Step("starting Spark"))
    with starting_spark(job, master, given) as spark:
        yield spark.wait()
