"""Tells systemd what the node does, as units of `Type=notify` expect it.

systemd passes the path of a datagram socket in NOTIFY_SOCKET and takes lines of assignments there.
Without the variable nobody listens, and nothing is sent.
"""

import logging
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

logger = logging.getLogger("warren.node")

_VARIABLE: Final = "NOTIFY_SOCKET"


class ServiceManager:
    """Sends the states of one node to the socket that `environment` names.

    The variable is removed from `environment`: processes that the node starts are not the service,
    and must not speak for it.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        path = environment.pop(_VARIABLE, "")
        # A socket in the abstract namespace begins with a zero byte, written as @.
        self._address = "\0" + path[1:] if path.startswith("@") else path

    def ready(self) -> None:
        """Tell that the node accepts clients, also again after a reload."""
        self._tell("READY=1", "STATUS=accepting clients")

    def reloading(self) -> None:
        """Tell that the node reads its configuration again; `ready` must follow."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, why: str) -> None:
        """Tell that the node stops, and the reason `why` for people."""
        self._tell("STOPPING=1", f"STATUS=stopping: {why}")

    def _tell(self, *assignments: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A manager that reads nothing must not stop the loop.
                sender.setblocking(False)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            logger.warning("systemd is not told %s: %s", assignments[0], error.strerror)
