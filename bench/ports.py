"""Free ports on the loopback, and waiting for one to open."""

import socket
import time


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def await_port(port: int, timeout_s: float = 10.0) -> None:
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
