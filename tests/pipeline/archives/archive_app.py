"""An archive for kill tests; the arguments are URI TARGET CHECKPOINT FORMAT.

It archives the queue "kills" until it is killed; with a fifth argument `once` it ends with the
queue. Batches and merges are small, so that a kill hits many of both.
"""

import os
import signal
import sys
import threading
import time
from typing import get_args

from warrenmq.pipeline import archive
from warrenmq.pipeline.archives.directory import Format


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    uri, target, checkpoint, file_format = sys.argv[1:5]
    formats: dict[str, Format] = {each: each for each in get_args(Format)}
    result = archive(
        target,
        uri=uri,
        queues=["kills"],
        checkpoint=checkpoint,
        format=formats[file_format],
        continuous=sys.argv[5:] != ["once"],
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
