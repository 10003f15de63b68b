"""The process from which a job's own local Spark (spark_run.py) forks its workers.

Modules that tasks need are loaded once, before the first fork. pandas is not one of them: pyarrow
would load it in each worker, at twice the cost of all other modules together, only to find out
whether its input is a Series.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

_LOADED: Final = (
    "pyspark.worker",
    "warrenmq.admin.client.client",
    "warrenmq.pipeline.archives.files",
    "warrenmq.pipeline.archives.source",
    "warrenmq.tables.blocks",
    "warrenmq.tables.slice_files",
)


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not in the tasks of this job", name=name)


def load() -> None:
    """Load the modules of tasks. Start no threads: a process that has threads should not fork."""
    # Spark puts a zip archive with a copy of itself first, whose modules each process would compile
    # again. Sort archives to the end.
    sys.path.sort(key=lambda place: place.endswith(".zip"))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    refusal = _NoPandas()
    sys.meta_path.insert(0, refusal)
    import pyarrow as pa

    # pyarrow looks for pandas only at its first conversion, and remembers the answer.
    pa.array([0])
    sys.meta_path.remove(refusal)
    for name in _LOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    load()
    from warrenmq.spark.local.worker_daemon import fork_workers

    fork_workers()
