"""An application behind a real server of HTTP, in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.types import ASGIApp

from bench.ports import await_port, held_port

TIMEOUT_S = 30.0


@contextmanager
def served(app: ASGIApp) -> Iterator[httpx.Client]:
    """A client of `app`, which listens on the loopback meanwhile."""
    port = held_port(app)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    await_port(port)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as client:
        yield client
    server.should_exit = True
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
