"""What a Python worker of Spark's does before its first task."""

import gc

from pyspark import TaskContext


def settle() -> None:
    """In a task: spare what the worker has loaded, modules above all, in its later garbage collections.

    Spark collects all garbage after each task (pyspark/daemon.py). Over the modules of Arrow, numpy and Spark that takes 20
    to 40 ms of CPU, each time in vain; what a task leaves behind is collected as before.
    """
    if TaskContext.get() is not None and gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
