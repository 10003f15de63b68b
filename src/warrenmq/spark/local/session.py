"""Starts a Spark session or context with settings for one machine and for warren's data sources."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warrenmq.spark.local.class_archive import archive_options
from warrenmq.spark.local.java import require_packages, require_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Longest path (bytes) of a directory for worker sockets. The path of a socket has at most 107
# bytes, and Spark appends "/.<uuid>.sock".
SOCKET_DIRECTORY_BYTES_MAX: Final = 64
# How often a task may fail before its job fails; Spark's default for a local session is once.
TASK_FAILURES_MAX: Final = 4
CONNECT_SCHEME: Final = "sc://"

# Without this option a JVM that runs out of memory hangs.
_JAVA_OPTIONS: Final = "-XX:+ExitOnOutOfMemoryError"
# Options of a JVM that computes little itself: it compiles less, starts sooner and costs half.
_LIGHT_JAVA_OPTIONS: Final = f"{_JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

# Settings of every new session, local or remote.
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
}
# Settings of every new session whose driver runs in a JVM of this process.
_DRIVER_SETTINGS: Final = {
    # warren shows the progress of its jobs itself, or none.
    "spark.ui.showConsoleProgress": "false",
    # Parquet files of bodies have neither a dictionary nor bounds of their column: both compare
    # whole bodies with each other, which costs a third of the JVM's time for a row of 1 KiB. Few
    # filters compare whole bodies, and compression finds bodies that repeat.
    "spark.hadoop.parquet.enable.dictionary#body": "false",
    "spark.hadoop.parquet.column.statistics.enabled#body": "false",
}


def session(
    app_name: str = "warren",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    tells_failures: bool = True,
    is_light: bool = False,
) -> "SparkSession":
    """The active Spark session, unchanged, or a new one with warren's settings and `settings`.

    `settings` override those of warren. `master` is the address of a cluster as Spark takes it, or
    of a Spark Connect server (`sc://host:15002`). Without `master` the session is local, with all
    cores that this process may use. Raises SparkUnavailableError, in one line, when pyspark or Java
    17 or newer is missing. A session of your own works too: warren needs none of these settings,
    and its formats need no registration. With `tells_failures=False` Spark does not log the errors
    that it raises. With `is_light` a new JVM starts sooner and compiles less, for a short program.
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
        values = _settings(master, java_options(is_light, tells_failures))
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
    """The active Spark context, or a new one without SQL, whose JVM only distributes Python tasks.

    `master` as for `session`, except for Spark Connect servers. `local_settings` apply to a new
    local context. With `stops` a new context is stopped at the end, which takes a second; an active
    one is never stopped. With `tells_failures=False` Spark does not log the errors that it raises.
    Call `require_spark` first.
    """
    from pyspark import SparkConf, SparkContext

    # A process has at most one Spark context, so an active one must be used.
    is_active = SparkContext._active_spark_context is not None
    _choose_python()
    master = master or _local_master()
    values = _settings(master, java_options(True, tells_failures))
    if master.startswith("local"):
        values |= local_settings
    conf = SparkConf().setAppName(app_name).setMaster(master).setAll(list(values.items()))
    context = SparkContext.getOrCreate(conf)
    try:
        yield context
    finally:
        if stops and not is_active:
            context.stop()


def java_options(is_light: bool = False, tells_failures: bool = True) -> str:
    """Options of the driver's JVM, for `spark.driver.extraJavaOptions`; see `session`.

    Call `require_spark` first. When this machine has no archive of Spark's classes yet, one is made
    after this process has ended (class_archive.py).
    """
    options = (
        _LIGHT_JAVA_OPTIONS if is_light else _JAVA_OPTIONS,
        archive_options(),
        log_options(tells_failures),
    )
    return " ".join(filter(None, options))


def log_options(tells_failures: bool = True) -> str:
    """JVM options that make Spark log errors only; empty when SPARK_CONF_DIR configures the log.

    With `tells_failures=False` Spark does not log the errors that it raises either.
    """
    directory = os.environ.get("SPARK_CONF_DIR")
    if directory and Path(directory, "log4j2.properties").exists():
        return ""
    options = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    return options if tells_failures else f"{options} -Dwarren.failures.log.level=off"


def _choose_python() -> None:
    # By default workers run the python3 of PATH. In a virtual environment that is not activated
    # that is another Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _local_master() -> str:
    return f"local[{len(os.sched_getaffinity(0))},{TASK_FAILURES_MAX}]"


def _settings(master: str, driver_options: str) -> dict[str, str]:
    """Settings of a session whose driver runs in a JVM of this process."""
    values = {**_SETTINGS, **_DRIVER_SETTINGS, "spark.driver.extraJavaOptions": driver_options}
    if master.startswith("local"):
        values |= _local_settings(len(os.sched_getaffinity(0)))
    return values


def _local_settings(cores: int) -> dict[str, str]:
    """Settings of a session whose driver and workers run on this machine."""
    scratch = tempfile.gettempdir()
    return {
        # Spark listens on the loopback interface only. Workers use sockets in the file system where
        # the socket paths are short enough.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": (
            "true" if len(os.fsencode(scratch)) <= SOCKET_DIRECTORY_BYTES_MAX else "false"
        ),
        "spark.python.daemon.module": "warrenmq.spark.local.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": os.path.join(scratch, f"warren-spark-warehouse-{os.getuid()}"),
        # This checkpoint manager saves a fifth of a small batch's time on a local disk.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
