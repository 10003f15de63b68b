"""Parts of the simulated node that a test replaces to plant a bug.

A simulator that never finds a bug proves nothing until it finds a planted one. A history runs with
the parts that `NodeParts` makes, which are the real ones. `tests/simulator/planted_bugs.py` has a
subclass for each planted bug.
"""

from __future__ import annotations

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.disk.flusher import BatchFlusher
from warrenmq.store.disk.job_runner import JobRunner
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileSystem


class NodeParts:
    """Makes the parts of a node that work on the disk, as a real node has them."""

    # True: the loop learns of a group commit before the commit is on disk.
    confirms_early = False

    def files(self, files: FileSystem) -> FileSystem:
        """The file system that the node uses."""
        return files

    def change_vhost(self, vhost: Vhost) -> None:
        """Called when the definitions of a vhost are read, before its messages."""

    def end_turn(self, broker: Broker) -> None:
        """Called before the node handles the frames that it deferred during an alarm."""

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        """The flusher, which makes batches durable."""
        return BatchFlusher(files, reserve)

    def runner(self, files: FileSystem, store_id: bytes, reserve: SpaceReserve) -> JobRunner:
        """The runner of all other disk jobs."""
        return JobRunner(files, store_id, reserve=reserve)
