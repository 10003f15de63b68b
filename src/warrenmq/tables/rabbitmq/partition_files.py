"""Saves partitions of an import as files: a task reads its own file, so plans need not be sent."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from warrenmq.tables.rabbitmq.import_plan import Partition

_ARRAYS = ("seqs", "expiries", "files", "offsets", "lengths")


def cut(partition: Partition, first: int, end: int) -> Partition:
    """The messages at the places [first, end) of a partition, as a partition."""
    arrays = {name: getattr(partition, name)[first:end] for name in _ARRAYS}
    return replace(partition, ids=partition.ids[16 * first : 16 * end], **arrays)


def save_partition(path: Path, partition: Partition) -> None:
    """Write a partition to a file."""
    np.savez(
        path,
        vhost=np.array(partition.vhost),
        queue=np.array(partition.queue),
        paths=np.array(partition.paths, str),
        ids=np.frombuffer(partition.ids, np.uint8),
        **{name: getattr(partition, name) for name in _ARRAYS},
    )


def load_partition(path: Path) -> Partition:
    """The partition that `save_partition` wrote to a file."""
    with np.load(path) as found:
        return Partition(
            str(found["vhost"]),
            str(found["queue"]),
            tuple(str(name) for name in found["paths"]),
            found["ids"].tobytes(),
            *(found[name] for name in _ARRAYS),
        )
