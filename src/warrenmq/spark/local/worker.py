"""Prepares a Python worker of Spark before its first task."""

import gc

from pyspark import TaskContext


def settle() -> None:
    """Exempt all objects that the worker has loaded from later garbage collections; run in a task.

    Most of these objects are modules. Spark collects all garbage after each task
    (pyspark/daemon.py). Scanning the modules of Arrow, numpy and Spark takes 20 to 40 ms of CPU
    each time and finds nothing. Objects that a task leaves behind are still collected.
    """
    if TaskContext.get() is not None and gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
