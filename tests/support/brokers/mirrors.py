"""Copies of mirrored queues as a test says they are."""

from collections.abc import Callable

from warrenmq.broker.mirrors import (
    UNKNOWN,
    CopyFacts,
    MasterMove,
    MirrorControl,
    MirrorFacts,
    MovePlan,
    SyncProgress,
    mirror_pid,
)

MASTER = "n1@host"


def copy(
    node: str,
    is_synced: bool = True,
    is_online: bool = True,
    lag: tuple[int, int] = (0, 0),
    sync: tuple[int, int] | None = None,
    rates: tuple[float, float] = (0.0, 0.0),
    lag_ms: int = UNKNOWN,
) -> CopyFacts:
    """A mirror on `node`; `lag`: messages and bytes, `sync`: messages of how many.

    `rates` of the synchronisation: messages and bytes a second.
    """
    progress = None if sync is None else SyncProgress(*sync, *rates)
    return CopyFacts(
        node, mirror_pid(node, 40, 7), is_synced, is_online, *lag, progress, lag_ms=lag_ms
    )


def facts(
    *mirrors: CopyFacts,
    master: str = MASTER,
    is_down: bool = False,
    reason: str = "declared",
    min_sync: int = 1,
    promotes_unsynced: bool = False,
) -> MirrorFacts:
    """A queue with these mirrors, the oldest first."""
    nodes = tuple(each.node for each in mirrors)
    return MirrorFacts(
        master=master,
        is_down=is_down,
        reason=reason,
        mirrors=mirrors,
        ring=(master, *reversed(nodes)),
        recoverable=(master, *nodes),
        epoch=3,
        version=9,
        min_sync=min_sync,
        promotes_unsynced=promotes_unsynced,
    )


class MirrorsOfTest(MirrorControl):
    """Tells what `copies` says, by vhost and queue, and notes what is asked."""

    def __init__(self) -> None:
        self.copies: dict[tuple[bytes, bytes], MirrorFacts] = {}
        self.asked: list[tuple[str, bytes]] = []
        # Facts that the next calls of `facts_of` return, before those of `copies`.
        self.next: list[MirrorFacts] = []
        self.failure = ""
        self.is_syncing = False
        # Whether a copy may take over when a master is lost.
        self.has_heir = True

    def put(self, queue: str, found: MirrorFacts) -> None:
        """The copies of a queue of the vhost `/`."""
        self.copies[b"/", queue.encode()] = found

    def facts_of(self, vhost: bytes, queue: bytes) -> MirrorFacts | None:
        return self.next.pop(0) if self.next else self.copies.get((vhost, queue))

    def counts_of(self, vhost: bytes, queue: bytes) -> tuple[int, int]:
        found = self.copies.get((vhost, queue))
        mirrors = () if found is None else found.mirrors
        return len(mirrors), len([each for each in mirrors if each.is_synced])

    def awaits_master(self, vhost: bytes, queue: bytes) -> bool:
        return self.has_heir

    def synchronise(self, vhost: bytes, queue: bytes) -> str:
        self.asked.append(("sync", queue))
        return self.failure

    def cancel_sync(self, vhost: bytes, queue: bytes) -> bool:
        self.asked.append(("cancel", queue))
        return self.is_syncing

    def plan_rebalance(self, is_meant: Callable[[bytes, bytes], bool]) -> MovePlan:
        moves = [
            MasterMove(vhost.decode(), name.decode(), found.master, found.mirrors[0].node)
            for (vhost, name), found in self.copies.items()
            if is_meant(vhost, name)
        ]
        return MovePlan({MASTER: len(self.copies)}, moves)

    def rebalance(
        self, is_meant: Callable[[bytes, bytes], bool], done: Callable[[str], None]
    ) -> None:
        self.asked += [("rebalance", name) for vhost, name in self.copies if is_meant(vhost, name)]
        done(self.failure)
