"""The key-value store of one machine, served by a thread of the tests, and clients of it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warrenmq.cluster.key_store.disk import KeyStoreFile
from warrenmq.cluster.key_store.server import USER, KeyStoreServer
from warrenmq.cluster.metadata.endpoints import Credentials
from warrenmq.cluster.metadata.gateway import EtcdGateway


class ServedKeyStore:
    """A store that is served at `url`."""

    def __init__(self, file: KeyStoreFile) -> None:
        self.server = KeyStoreServer(file)
        self.url = ""
        self.loop = asyncio.new_event_loop()

    def gateway(self) -> EtcdGateway:
        """A client of it; the caller closes it."""
        return EtcdGateway([self.url], Credentials(USER, self.server.password))


@contextmanager
def served_key_store(path: Path) -> Iterator[ServedKeyStore]:
    """The store in the file `path`, until the end of the context."""
    served = ServedKeyStore(KeyStoreFile(path))
    thread = threading.Thread(target=served.loop.run_forever)
    thread.start()
    try:
        start = asyncio.run_coroutine_threadsafe(served.server.start(), served.loop)
        served.url = start.result()
        yield served
        asyncio.run_coroutine_threadsafe(served.server.stop(), served.loop).result()
    finally:
        served.loop.call_soon_threadsafe(served.loop.stop)
        thread.join()
        served.loop.close()
