"""A program on Spark Connect: `python -m tests.spark.connect_app URI QUEUE DIRECTORY`.

The program starts its own Connect server, reads the queue as a table, drains it into Parquet,
archives the queue QUEUE-archived, and writes its observations to DIRECTORY/seen.json. A process has
either a Connect session or a classic one, so this program cannot run in the process of the tests.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.spark.settings import FAST_SETTINGS
from warrenmq.pipeline import archive
from warrenmq.spark.local.session import java_options

TIMEOUT_S = 300


def port_of_server() -> int:
    """The port of this process's Connect server: a free one, since the usual may be taken."""
    from pyspark.sql import SparkSession

    # The classic session that the server runs in.
    session: Any = SparkSession._instantiatedSession
    service = getattr(session._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port: int = getattr(service, "MODULE$").localPort()
    return port


def main() -> None:
    uri, queue, directory = sys.argv[1:4]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # PySpark searches for the port only with SPARK_TESTING, which also changes the JVM.
    DefaultChannelBuilder.default_port = staticmethod(  # type: ignore[method-assign]  # a patch
        port_of_server
    )
    builder = SparkSession.builder.remote("local[2]")
    settings = FAST_SETTINGS | {
        "spark.driver.extraJavaOptions": java_options(is_light=True),
        "spark.connect.grpc.binding.port": "0",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        source = {"uri": uri, "queues": queue}
        waiting = spark.read.format("warren").options(**source).load().count()
        stream = spark.readStream.format("warren").options(**source, group="connect").load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(Path(directory, "out")))
            .option("checkpointLocation", str(Path(directory, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        is_done = query.awaitTermination(TIMEOUT_S)
        left = spark.read.format("warren").options(**source).load().count()
        rows = (
            spark.read.parquet(str(Path(directory, "out")))
            .select("seq", "body")
            .orderBy("seq")
            .collect()
        )
        result = archive(Path(directory, "archive"), uri=uri, queues=[f"{queue}-archived"])
        archived = spark.read.parquet(str(Path(directory, "archive"))).orderBy("seq").collect()
        seen = {
            "kind": type(spark).__module__,
            "waiting": waiting,
            "done": is_done,
            "left": left,
            "archived": result.messages,
            "archived_bodies": [bytes(row["body"]).decode() for row in archived],
            "bodies": [bytes(row["body"]).decode() for row in rows],
        }
        Path(directory, "seen.json").write_text(json.dumps(seen))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
