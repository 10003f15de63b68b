"""Transactions and events of etcd for the node's loop, which never waits: threads do."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from warrenmq.broker.definitions.metadata import Change, MetadataError
from warrenmq.cluster.decision_store import CommitResult, DecisionStore
from warrenmq.cluster.metadata.conditions import Condition, NodeIs
from warrenmq.cluster.metadata.errors import Compacted
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata, Watched
from warrenmq.cluster.metadata.watching import StopSignal
from warrenmq.vocabulary.fail_points import fail_point

logger = logging.getLogger("warren.cluster")

# Transactions under way at the same time.
_THREADS: Final = 8
# Pause before a watch that etcd has refused is opened again (s).
_PAUSE_S: Final = 1.0
# A lease counts as ended so much earlier than etcd can end it (s).
_LEASE_MARGIN_S: Final = 1.0
# Two answers of etcd that are further apart have a break between them (s). Renewals come each
# second; a cut that lets a mirror find its master silent (`MASTER_SILENT_MS`) is longer.
CONTACT_S: Final = 3.0
_NO_LEASE: Final = "this node has lost its lease"

_Result = TypeVar("_Result")
# Takes a revision and its changes.
Follow = Callable[[int, list[Watched]], None]


class EtcdDecisions(DecisionStore):
    """The definitions of the cluster in etcd, as `node` decides them.

    `wake` asks for the end of a turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metadata: EtcdMetadata,
        node: bytes,
        wake: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._metadata = metadata
        self._node = node
        self._wake = wake
        self._threads = ThreadPoolExecutor(_THREADS, "etcd")
        self._stop = StopSignal()
        self._watching: threading.Thread | None = None
        # Why the last transaction has failed, or "".
        self.failure = ""
        # The lease of this node, which its exclusive queues get, and the birth of its record; 0
        # while it has none, and then it decides nothing.
        self.lease = 0
        self.birth = 0
        # Until when etcd keeps the lease at least, by `time.monotonic`.
        self._lease_until_s = 0.0
        # When the last renewal was answered, and the first one of those without a break before it.
        self._answered_s = 0.0
        self._contact_since_s = 0.0

    # -- the lease ---------------------------------------------------------------------------------

    def lease_left_ms(self) -> int:
        """See DecisionStore. A node that has stood still does not think that it has one."""
        return round((self._lease_until_s - time.monotonic()) * 1000)

    def lease_birth(self) -> int:
        """See DecisionStore."""
        return self.birth

    def contact_ms(self) -> int:
        """See DecisionStore. Renewals tell: each is answered within CONTACT_S of the last one."""
        now_s = time.monotonic()
        if now_s - self._answered_s > CONTACT_S:
            return 0
        return round((now_s - self._contact_since_s) * 1000)

    def renewed(self, began_s: float, left_s: float) -> None:
        """Note a renewal that was begun at `began_s`, after which the lease lasts `left_s`."""
        now_s = time.monotonic()
        self._lease_until_s = began_s + left_s - _LEASE_MARGIN_S
        if now_s - self._answered_s > CONTACT_S or left_s == 0:
            self._contact_since_s = now_s
        self._answered_s = now_s

    # -- transactions ------------------------------------------------------------------------------

    def commit(
        self,
        conditions: list[Condition],
        changes: list[Change],
        done: Callable[[CommitResult], None],
    ) -> None:
        future = self._threads.submit(self._commit, conditions, changes)
        future.add_done_callback(
            lambda ended: self._loop.call_soon_threadsafe(self._end, ended.result(), done)
        )

    async def run(self, step: Callable[[], _Result]) -> _Result:
        """Run a step that waits for etcd in a thread; raises what it raises."""
        return await self._loop.run_in_executor(self._threads, step)

    def _commit(self, conditions: list[Condition], changes: list[Change]) -> CommitResult:
        if self.birth == 0:
            return CommitResult(0, _NO_LEASE)
        own = NodeIs(self._node, self.birth)
        fail_point("decision.proposed")
        try:
            revision = self._metadata.commit([*conditions, own], changes, self.lease)
            if revision is None and self._metadata.commit([own], []) is None:
                # Nobody can tell whether the other conditions hold.
                return CommitResult(0, _NO_LEASE)
        except MetadataError as error:
            return CommitResult(0, str(error))
        except Exception as error:  # Somebody waits for the outcome, whatever is wrong.
            logger.exception("a proposal has failed")
            return CommitResult(0, f"internal error: {error}")
        if revision:
            fail_point("decision.committed")
        return CommitResult(revision or 0)

    def _end(self, result: CommitResult, done: Callable[[CommitResult], None]) -> None:
        self.failure = result.failure
        done(result)
        self._wake()

    # -- events ------------------------------------------------------------------------------------

    def watch(
        self,
        from_revision: int,
        follow: Follow,
        lost: Callable[[str], None],
    ) -> None:
        """Call `follow` on the loop with every decision from `from_revision` on, in order.

        `lost` is called if etcd no longer has a decision that this node has not seen.
        """
        self._stop = StopSignal()
        self._watching = threading.Thread(
            target=self._watch,
            args=(self._stop, from_revision, follow, lost),
            name="etcd-watch",
            daemon=True,
        )
        self._watching.start()

    def _watch(
        self,
        stop: StopSignal,
        from_revision: int,
        follow: Follow,
        lost: Callable[[str], None],
    ) -> None:
        next_revision = from_revision

        def on_changes(revision: int, changes: list[Watched]) -> None:
            nonlocal next_revision
            next_revision = revision + 1
            self._loop.call_soon_threadsafe(self._follow, stop, follow, revision, changes)

        # The last refusal in the log: a refusal that repeats is logged once.
        refusal = ""
        while not stop.is_set():
            try:
                self._metadata.watch(next_revision, on_changes, stop)
            except Compacted as error:
                self._loop.call_soon_threadsafe(lost, str(error))
                return
            except MetadataError as error:
                if str(error) != refusal:
                    refusal = str(error)
                    logger.error("this node follows the cluster no more: %s", refusal)
                stop.wait(_PAUSE_S)

    def _follow(
        self, stop: StopSignal, follow: Follow, revision: int, changes: list[Watched]
    ) -> None:
        if not stop.is_set():
            follow(revision, changes)
            self._wake()

    def end_watch(self) -> None:
        """Follow no more decisions; waits for the end of the watch, so not for the loop."""
        self._stop.set()
        if self._watching is not None:
            self._watching.join()
            self._watching = None

    def stop(self) -> None:
        """End the watch and all threads; waits for transactions under way."""
        self.end_watch()
        self._threads.shutdown()
