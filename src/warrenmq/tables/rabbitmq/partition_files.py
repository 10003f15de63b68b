"""Partitions of an import in files: a task reads its own, and nobody sends all of them about."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from warrenmq.tables.rabbitmq.import_plan import Partition

_ARRAYS = ("seqs", "expiries", "files", "offsets", "lengths")


def cut(partition: Partition, first: int, end: int) -> Partition:
    """The messages `first` to `end`, by their places in it."""
    arrays = {name: getattr(partition, name)[first:end] for name in _ARRAYS}
    return replace(partition, ids=partition.ids[16 * first : 16 * end], **arrays)


def save_partition(path: Path, partition: Partition) -> None:
    """Write a partition."""
    np.savez(
        path,
        vhost=np.array(partition.vhost),
        queue=np.array(partition.queue),
        paths=np.array(partition.paths, str),
        ids=np.frombuffer(partition.ids, np.uint8),
        **{name: getattr(partition, name) for name in _ARRAYS},
    )


def load_partition(path: Path) -> Partition:
    """What `save_partition` has written."""
    with np.load(path) as found:
        return Partition(
            str(found["vhost"]),
            str(found["queue"]),
            tuple(str(name) for name in found["paths"]),
            found["ids"].tobytes(),
            *(found[name] for name in _ARRAYS),
        )
