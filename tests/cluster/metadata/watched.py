"""A watch in a thread of its own, and what it has told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.awaiting import eventually
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.operations import Event
from warrenmq.cluster.metadata.watching import StopSignal


class Watched:
    """What a watch has told, by revision, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[Event]]] = []
        self.stop = StopSignal()
        # What ended the watch.
        self.error: Exception | None = None

    def revisions(self) -> list[int]:
        return [revision for revision, _ in self.told]

    def await_revision(self, revision: int) -> None:
        """Return when the watch has told of `revision`."""
        eventually(
            lambda: self.error is not None or revision in self.revisions(),
            f"the watch tells of revision {revision}, after {self.revisions()[-3:]}",
        )
        assert self.error is None, self.error

    def run(self, watch: Callable[[], None]) -> None:
        try:
            watch()
        except Exception as error:  # the test that waits is told
            self.error = error


@contextmanager
def watching(gateway: EtcdGateway, prefix: bytes, from_revision: int) -> Iterator[Watched]:
    """A running watch; it must end when it is told to."""
    watched = Watched()

    def on_events(revision: int, events: list[Event]) -> None:
        watched.told.append((revision, events))

    def watch() -> None:
        gateway.watch(prefix, from_revision, on_events, watched.stop)

    thread = threading.Thread(target=watched.run, args=[watch])
    thread.start()
    try:
        yield watched
    finally:
        watched.stop.set()
        thread.join()
