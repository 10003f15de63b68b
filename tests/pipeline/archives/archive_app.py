"""An archive job for kill tests: `python -m tests.pipeline.archives.archive_app URI TARGET FORMAT`.

It archives the queue "kills" until it is killed; with a fourth argument `once` it ends with the
queue. Batches and merges are small, so that a kill hits many of both.
"""

import os
import signal
import sys
import threading
import time

from warrenmq.pipeline import archive


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    uri, target, file_format = sys.argv[1:4]
    result = archive(
        target,
        uri=uri,
        queues=["kills"],
        format="delta" if file_format == "delta" else "parquet",
        continuous=sys.argv[4:] != ["once"],
        interval_s=0.1,
        max_messages=200,
        merge_bytes=64 << 10,
    )
    print(result.as_json())


def end_with(parent: int) -> None:
    """Kill the program's process group, JVM included, when the test run `parent` has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
