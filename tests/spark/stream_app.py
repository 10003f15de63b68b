"""A streaming program to be killed: queue to Parquet. `python -m tests.spark.stream_app URI QUEUE DIRECTORY [once]`.

Runs until it is killed; with `once` it drains the queue and ends.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import warren.spark


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    uri, queue, directory = sys.argv[1:4]
    is_once = sys.argv[4:] == ["once"]
    spark = warren.spark.session("stream_app", settings=dict(FAST_SETTINGS))
    stream = (
        spark.readStream.format("warren")
        .option("uri", uri)
        .option("queue", queue)
        .option("group", "stream-app")
        .option("maxMessagesPerTrigger", 300)
        .option("longPollMs", 500)
        .load()
        .selectExpr("seq", "CAST(body AS string) AS body")
    )
    writer = (
        stream.writeStream.format("parquet")
        .option("path", str(Path(directory, "out")))
        .option("checkpointLocation", str(Path(directory, "checkpoint")))
    )
    query = writer.trigger(availableNow=True).start() if is_once else writer.start()
    query.awaitTermination()


def end_with(parent: int) -> None:
    """A test run that is killed must not leave a JVM behind; this program has a process group of its own."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


# A JVM for tests: compiles less, starts sooner, and is content with less memory.
FAST_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1",
}


if __name__ == "__main__":
    main()
