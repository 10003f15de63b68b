"""The process that Spark forks the workers of a job from, when the job has a local Spark for itself (spark_run.py).

What tasks need is loaded once, before the first fork. pandas is not among it: pyarrow would load it in each worker, at
twice the cost of everything else together, to find out whether what it is given is a Series.
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
    "warrenmq.admin.client",
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
    """Load what tasks need. No threads are begun: a process that has some should not fork."""
    # Spark puts a copy of itself in front, in an archive whose modules are compiled anew in each process.
    sys.path.sort(key=lambda place: place.endswith(".zip"))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    refusal = _NoPandas()
    sys.meta_path.insert(0, refusal)
    import pyarrow as pa

    # It asks for pandas once.
    pa.array([0])
    sys.meta_path.remove(refusal)
    for name in _LOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    load()
    from warrenmq.spark.worker_daemon import fork_workers

    fork_workers()
