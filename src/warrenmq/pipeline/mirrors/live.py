"""Snapshots of the copies of a mirrored queue in a running cluster, which can be compared.

The queue goes on meanwhile, so the snapshots are taken in an order:

1. the master's;
2. a wait, until each mirror in sync has on its disk all that the master had sent before the end of
   step 1: the age of the oldest change that it lacks says so;
3. the mirrors' snapshots.

So of what the master's snapshot has, and of what had left the queue before it, each mirror in sync
has heard. What a mirror has beyond the last seq id of the master's snapshot is newer. The record of
the group must be the same before and after: no other master, no mirror that came or left.
"""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warrenmq.admin.client.backup import BackupFailedError
from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.node_addresses import uri_at
from warrenmq.admin.protocol.homes import LocateQueues
from warrenmq.admin.protocol.mirrors import DescribeMirrors, MirrorStatus
from warrenmq.pipeline.progress import Progress, Step
from warrenmq.pipeline.result import JobError
from warrenmq.spark.node_snapshot import node_snapshot
from warrenmq.spark.nodes import Nodes
from warrenmq.spark.waits import waiting

PURPOSE: Final = "warren compare-mirrors"
# How often snapshots are taken anew because the copies have changed their roles meanwhile.
ATTEMPTS_MAX: Final = 5
# The wait for the mirrors to have what the master had; one that lags leaves the list of those in
# sync long before (s).
CATCH_UP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
# Nodes know the time of a turn: the age of a change may be short by one (s).
_TURN_S: Final = 0.2


@dataclass(frozen=True)
class Snapshot:
    """The snapshot of a node's data in the directory `path`."""

    node: str
    path: Path
    is_master: bool
    is_in_sync: bool


@dataclass(frozen=True)
class Snapshots:
    """Snapshots of the copies, the master's first; `away`: nodes of copies that do not answer.

    `version` and `epoch` are those of the group's record.
    """

    copies: tuple[Snapshot, ...]
    away: tuple[str, ...]
    epoch: int
    version: int

    def is_like(self, other: "Snapshots") -> bool:
        """Whether the same copies have had the same roles in both, and in the time between."""
        return (self.epoch, self.version) == (other.epoch, other.version) and [
            each.node for each in self.copies
        ] == [each.node for each in other.copies]


class LiveQueue:
    """The mirrored queue `queue` in the cluster of the node at `uri`.

    Snapshots go below `directory` (None: the directory for temporary files), which all nodes and
    this machine must see.
    """

    def __init__(
        self, uri: str, queue: str, directory: str | Path | None, progress: Progress
    ) -> None:
        self._uri = uri
        self._address = NodeAddress(uri)
        self._queue = queue
        self._directory = directory
        self._progress = progress

    def must_be_mirrored(self) -> None:
        """JobError unless the queue exists, has mirrors, and is served."""
        self._status()

    @contextlib.contextmanager
    def snapshots(self) -> Iterator[Snapshots]:
        """Yield snapshots of all copies that can be reached, which last as long as the block.

        JobError when no two copies can be reached, or when the copies do not keep their roles.
        """
        for _ in range(ATTEMPTS_MAX):
            with contextlib.ExitStack() as stack:
                try:
                    taken = self._take(stack)
                except (AdminRefusedError, BackupFailedError, NodeUnreachableError) as error:
                    raise JobError(str(error)) from error
                if taken is not None:
                    yield taken
                    return
        raise JobError(
            f"the copies of queue '{self._queue}' changed their roles during each of "
            f"{ATTEMPTS_MAX} attempts to take snapshots of them: try again when they are in sync"
        )

    def _take(self, stack: contextlib.ExitStack) -> Snapshots | None:
        """Snapshots that `stack` deletes; None when a copy has changed its role meanwhile."""
        status = self._status()
        nodes = Nodes(self._uri, PURPOSE)
        nodes.ask(LocateQueues())
        uris = {
            place.node: uri_at(self._uri, place.host, place.port) for place in nodes.places.values()
        }
        mirrors = [each for each in status.mirrors if each.is_online and each.node in uris]
        if not mirrors:
            away = ", ".join(sorted({*status.recoverable_slaves, *status.slave_nodes}))
            raise JobError(
                f"queue '{self._queue}' has no mirror that can be reached (nodes that have had "
                f"a copy: {away})"
            )
        if status.node not in uris:
            raise JobError(f"node {status.node}, which has the master, cannot be reached")
        in_sync = {each.node for each in mirrors if each.is_synchronised}
        master = self._snapshot(stack, status.node, uris[status.node])
        taken_s = time.monotonic()
        if not self._await_caught_up(in_sync, taken_s):
            return None
        # An exit stack that several threads enter keeps all of them.
        with ThreadPoolExecutor(len(mirrors), "warren-snapshots") as threads:
            paths = list(
                threads.map(lambda each: self._snapshot(stack, each.node, uris[each.node]), mirrors)
            )
        after = self._status()
        if (after.epoch, after.version) != (status.epoch, status.version):
            return None
        known = {status.node, *(each.node for each in mirrors)}
        lost = {*status.recoverable_slaves, *status.slave_nodes} - known
        copies = [
            Snapshot(each.node, path, False, each.is_synchronised)
            for each, path in zip(mirrors, paths, strict=True)
        ]
        return Snapshots(
            (Snapshot(status.node, master, True, True), *copies),
            tuple(sorted(lost)),
            status.epoch,
            status.version,
        )

    def _snapshot(self, stack: contextlib.ExitStack, node: str, uri: str) -> Path:
        self._progress.show(Step("taking snapshots", note=node))
        path = stack.enter_context(node_snapshot(uri, self._directory))
        if not path.is_dir():
            raise JobError(
                f"node {node} has its snapshot on its own machine: name a directory that all "
                "nodes and this machine see (--snapshots)"
            )
        return path

    def _await_caught_up(self, in_sync: set[str], taken_s: float) -> bool:
        """Wait until the mirrors have all that the master had at `taken_s` of the local clock.

        False when one of them is in sync no more.
        """
        with waiting("the mirrors to have what the master has") as wait:
            while True:
                asked_s = time.monotonic()
                lags = {
                    each.node: each.lag_ms
                    for each in self._status().mirrors
                    if each.is_synchronised
                }
                if not in_sync <= lags.keys():
                    return False
                behind = [
                    node
                    for node in sorted(in_sync)
                    if not _has_caught_up(lags[node], asked_s - taken_s)
                ]
                if not behind:
                    return True
                if wait.lasts_s > CATCH_UP_TIMEOUT_S:
                    raise JobError(
                        f"{', '.join(behind)} did not catch up with the master of queue "
                        f"'{self._queue}' in {CATCH_UP_TIMEOUT_S:.0f} s"
                    )
                time.sleep(_POLL_S)

    def _status(self) -> MirrorStatus:
        """The copies as the master tells them. JobError when nobody serves the queue."""
        request = DescribeMirrors(vhost=self._address.vhost, queue=self._queue.encode())
        try:
            with AdminClient(self._address, PURPOSE) as client:
                status = client.request(request, MirrorStatus)
        except (AdminRefusedError, NodeUnreachableError) as error:
            raise JobError(str(error)) from error
        if status.pid is None:
            raise JobError(
                f"queue '{self._queue}' is down: its master was at {status.node} ({status.reason})"
            )
        return status


def _has_caught_up(lag_ms: int | None, elapsed_s: float) -> bool:
    """Whether a mirror has all changes that are older than `elapsed_s`."""
    return lag_ms is not None and (lag_ms == 0 or lag_ms / 1000 + _TURN_S < elapsed_s)
