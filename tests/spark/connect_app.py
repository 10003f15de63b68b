"""A program on Spark Connect: `python -m tests.spark.connect_app URI QUEUE DIRECTORY`.

Starts a Connect server of its own, looks at the queue, drains it into Parquet, archives what is in the queue QUEUE-archived, and
writes what it saw to DIRECTORY/seen.json. A process has either a Connect session or one of the other kind, so it is not part of the tests' own.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.spark.settings import FAST_SETTINGS
from warrenmq.pipeline import archive

TIMEOUT_S = 300


def port_of_server() -> int:
    """Of the Connect server in this process's own JVM, on a free port: on the usual one there may be another one."""
    from pyspark.sql import SparkSession

    # The one that the server runs in.
    session: Any = SparkSession._instantiatedSession
    service = getattr(session._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port: int = getattr(service, "MODULE$").localPort()
    return port


def main() -> None:
    uri, queue, directory = sys.argv[1:4]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # PySpark looks for the port only with SPARK_TESTING, which changes the JVM as well.
    DefaultChannelBuilder.default_port = staticmethod(port_of_server)  # type: ignore[method-assign]  # for that
    builder = SparkSession.builder.remote("local[2]")
    for key, value in (FAST_SETTINGS | {"spark.connect.grpc.binding.port": "0"}).items():
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
