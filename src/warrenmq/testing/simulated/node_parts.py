"""Where the simulated node can be made to do wrong: a simulator that finds nothing must be shown to find something.

A history runs with the parts that `NodeParts` makes, which are the real ones. A test plants a bug by making one of them
otherwise; `tests/simulation/planted_bugs.py` has those that are kept for it.
"""

from __future__ import annotations

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.disk.flusher import BatchFlusher
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileSystem


class NodeParts:
    """The parts of a node that wait for the disk, as they are in a real one."""

    # Does the loop learn of a group commit before it is on disk?
    confirms_early = False

    def files(self, files: FileSystem) -> FileSystem:
        """The file system that the node sees."""
        return files

    def change_vhost(self, vhost: Vhost) -> None:
        """The definitions of a vhost are read, and no message yet."""

    def end_turn(self, broker: Broker) -> None:
        """The node is about to handle what it held back during an alarm."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        """What makes batches durable."""
        return BatchFlusher(files, reserve)

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        """What does the other jobs."""
        return JobRunner(files, store_id, reserve=reserve)
