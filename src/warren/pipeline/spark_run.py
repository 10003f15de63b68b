"""Spark for a job: a session, and its errors as one line."""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from warren.pipeline.result import JobError
from warren.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Our own errors reach the driver inside the traceback of a Python worker.
_OURS: Final = re.compile(r"\bwarren\.[\w.]+(?:Error|Exception): (.+)")


@contextlib.contextmanager
def spark_for(job: str, master: str | None, given: "SparkSession | None" = None) -> Iterator["SparkSession"]:
    """The session a job runs in: `given`, or the active one, or a new one at `master` (None: local); it is left running.

    What a job sets on it does not touch the caller's: it is a session of its own in the same Spark. SparkUnavailableError
    when Spark or Java is missing; what Spark raises inside the block comes out as JobError.
    """
    spark = given if given is not None else session(f"warren {job}", master)
    from pyspark.errors import PySparkException

    own = spark.newSession()
    # Times are told apart from dates and partition values in one time zone, whatever the machine's is; and names of
    # partitions are names also when they look like numbers.
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        yield own
    except PySparkException as error:
        raise JobError(one_line(str(error))) from error


def one_line(text: str) -> str:
    """The line of an error of Spark that says what happened: ours where there is one in it, else the first."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark failed without a word"
