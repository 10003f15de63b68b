"""A Spark session with settings that suit one machine and the data source "warren"."""

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from warren.spark.java import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The name of a socket has at most 107 bytes; Spark's own part of it is "/.<uuid>.sock".
SOCKET_DIRECTORY_BYTES_MAX = 64


def session(
    app_name: str = "warren", master: str = "local[2,4]", settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """The active Spark session, or a new local one in which format "warren" works. `settings` override ours.

    SparkUnavailableError, one line, when pyspark or a Java of at least version 17 is missing. A session of your own
    works as well: nothing of warren needs these settings, and format "warren" needs no registration.
    """
    require_spark()
    # Else workers run the python3 of PATH, which is another one in a virtual environment that is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in (_settings() | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings() -> dict[str, str]:
    scratch = tempfile.gettempdir()
    return {
        # Nothing listens on other interfaces, and workers use sockets in the file system where their names fit.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": (
            "true" if len(os.fsencode(scratch)) <= SOCKET_DIRECTORY_BYTES_MAX else "false"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        # A JVM that ran out of memory hangs otherwise.
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.warehouse.dir": os.path.join(scratch, f"warren-spark-warehouse-{os.getuid()}"),
        # Saves a fifth of a small batch's time on a local disk.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
