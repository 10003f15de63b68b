"""Ports on the loopback of one's own, and waiting for one to open."""

import socket
import time
import weakref


def held_port(owner: object, host: str = "127.0.0.1") -> int:
    """A free port that the system gives nobody else as long as `owner` lives: a socket is bound to it that never listens.

    A server that reuses addresses, as all here do, may listen there, and again after a restart. A port that is merely free
    now may be somebody else's when a slow server comes to listen on it, or while a killed one is away.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((host, 0))
    weakref.finalize(owner, holder.close)
    port: int = holder.getsockname()[1]
    return port


def await_port(port: int, timeout_s: float = 60.0) -> None:
    """Return when something listens on `port`; TimeoutError when nothing does in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing listens on port {port}") from None
        time.sleep(0.02)
