"""Reserves ports on the loopback, and waits for a port to open."""

import socket
import time
import weakref


def held_port(owner: object, host: str = "127.0.0.1") -> int:
    """Return a free port that the system gives to no other process as long as `owner` lives.

    A socket that never listens is bound to the port. A server that reuses addresses, as all servers
    here do, may listen on it, and again after a restart. A port that is only free at this moment
    may belong to another process before a slow server listens on it, or while a killed server is
    down.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((host, 0))
    weakref.finalize(owner, holder.close)
    port: int = holder.getsockname()[1]
    return port


def await_port(port: int, timeout_s: float = 60.0) -> None:
    """Return when a server listens on `port`; TimeoutError when none does within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing listens on port {port}") from None
        time.sleep(0.02)
