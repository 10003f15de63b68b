"""A Spark session with settings that suit one machine and the data sources of warren."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warrenmq.spark.java import require_packages, require_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# The name of a socket has at most 107 bytes; Spark's own part of it is "/.<uuid>.sock".
SOCKET_DIRECTORY_BYTES_MAX: Final = 64
# How often a task may fail before its job does; Spark's own default for a local session is once.
TASK_FAILURES_MAX: Final = 4
CONNECT_SCHEME: Final = "sc://"

# A JVM that ran out of memory hangs otherwise.
_JAVA_OPTIONS: Final = "-XX:+ExitOnOutOfMemoryError"
# Of one that computes nothing itself: it compiles less and starts sooner, at half the cost.
_LIGHT_JAVA_OPTIONS: Final = f"{_JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

# Of any session: of the driver's program, or of queries.
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
}


def session(
    app_name: str = "warren",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    tells_failures: bool = True,
) -> "SparkSession":
    """The active Spark session as it is, or a new one. `settings` override those of warren for a new one.

    `master` is a cluster's address as Spark takes it, or a Spark Connect server's (`sc://host:15002`); without one the
    session is local, with all cores that this process may use. SparkUnavailableError, one line, when pyspark or a Java of
    at least version 17 is missing. A session of your own works as well: nothing of warren needs these settings, and its
    formats need no registration. Without `tells_failures` Spark does not log what it raises.
    """
    if master is not None and master.startswith(CONNECT_SCHEME):
        require_packages()
    else:
        require_spark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    _choose_python()
    master = master or _local_master()
    builder = SparkSession.builder.appName(app_name)
    if master.startswith(CONNECT_SCHEME):
        builder = builder.remote(master)
        values = dict(_SETTINGS)
    else:
        builder = builder.master(master)
        values = _settings(master, f"{_JAVA_OPTIONS} {log_options(tells_failures)}")
    for key, value in (values | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextlib.contextmanager
def light_context(
    app_name: str,
    master: str | None,
    local_settings: Mapping[str, str],
    stops: bool,
    tells_failures: bool = True,
) -> Iterator["SparkContext"]:
    """Spark without SQL, whose JVM does nothing but share out tasks in Python: the active context, which stays, or a new one.

    `master` as for `session`, but no Spark Connect server; `local_settings` are for a new one without a cluster,
    which `stops` at the end; it takes a second. Without `tells_failures` Spark does not log what it raises. Needs what `require_spark` asks for.
    """
    from pyspark import SparkConf, SparkContext

    # Another context than the active one there cannot be in a process.
    is_active = SparkContext._active_spark_context is not None
    _choose_python()
    master = master or _local_master()
    values = _settings(master, f"{_LIGHT_JAVA_OPTIONS} {log_options(tells_failures)}")
    if master.startswith("local"):
        values |= local_settings
    conf = SparkConf().setAppName(app_name).setMaster(master).setAll(list(values.items()))
    context = SparkContext.getOrCreate(conf)
    try:
        yield context
    finally:
        if stops and not is_active:
            context.stop()


def log_options(tells_failures: bool = True) -> str:
    """Options of a JVM whose Spark logs errors only, unless its configuration says how it logs; without `tells_failures` not
    even those that it raises as well."""
    directory = os.environ.get("SPARK_CONF_DIR")
    if directory and Path(directory, "log4j2.properties").exists():
        return ""
    options = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    return options if tells_failures else f"{options} -Dwarren.failures.log.level=off"


def _choose_python() -> None:
    # Else workers run the python3 of PATH, which is another one in a virtual environment that is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _local_master() -> str:
    return f"local[{len(os.sched_getaffinity(0))},{TASK_FAILURES_MAX}]"


def _settings(master: str, java_options: str) -> dict[str, str]:
    """Of a driver in this process's JVM."""
    values = {**_SETTINGS, "spark.driver.extraJavaOptions": java_options}
    if master.startswith("local"):
        values |= _local_settings(len(os.sched_getaffinity(0)))
    return values


def _local_settings(cores: int) -> dict[str, str]:
    """Of a session whose driver and workers are one process on one machine."""
    scratch = tempfile.gettempdir()
    return {
        # Nothing listens on other interfaces, and workers use sockets in the file system where their names fit.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": (
            "true" if len(os.fsencode(scratch)) <= SOCKET_DIRECTORY_BYTES_MAX else "false"
        ),
        "spark.python.daemon.module": "warrenmq.spark.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": os.path.join(scratch, f"warren-spark-warehouse-{os.getuid()}"),
        # Saves a fifth of a small batch's time on a local disk.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
