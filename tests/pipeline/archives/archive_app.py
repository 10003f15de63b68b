"""An archive to be killed: `python -m tests.pipeline.archives.archive_app URI TARGET FORMAT [once]`; queue "kills".

Without `once` it goes on until it is killed. Batches and merges are small, so that many of both are under way.
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
    """A test run that is killed must not leave a JVM behind; this program has a process group of its own."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
