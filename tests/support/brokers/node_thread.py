"""A node in a thread of this process: real sockets, a real disk, and accessible broker objects."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

import uvloop

from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from warrenmq.server.config.load import Flags, read_sources
from warrenmq.server.config.sources import Sources
from warrenmq.server.node import Node

_T = TypeVar("_T")
TIMEOUT_S = 60.0


class NodeThread:
    """A running node; `settings` are KEY=VALUE of `--set`."""

    def __init__(self, directory: Path, *settings: str) -> None:
        flags = Flags(None, settings, directory / "data", listen="127.0.0.1:0")
        loaded = read_sources(flags, {})
        assert not loaded.errors
        self._loop = uvloop.new_event_loop()
        sources = Sources(loaded.in_force, partial(read_sources, flags, {}))
        self.node = Node(loaded.config, sources, self._loop)
        self.port = 0
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        self.port = int(started.result(TIMEOUT_S).rpartition(":")[2])

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def _run(self, started: Future[str]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            address = self._loop.run_until_complete(self.node.start())
        except Exception as error:  # the test that waits for the start gets any error
            started.set_exception(error)
            return
        started.set_result(address)
        self._loop.run_until_complete(self.node.wait_stopped())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def call(self, function: Callable[[], _T]) -> _T:
        """Run `function` on the node's loop; returns its result or raises its error."""
        result: Future[_T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except Exception as error:  # the caller gets any error
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result(TIMEOUT_S)

    def peer(self) -> Peer:
        """A link on which nothing was sent yet."""
        return Peer(SocketLink("127.0.0.1", self.port))

    def stop(self) -> None:
        """Stop the node in order."""
        self._loop.call_soon_threadsafe(self.node.request_stop, "the test is over")
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
