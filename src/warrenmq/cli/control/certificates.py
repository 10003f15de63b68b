"""When the certificates of a node's TLS listeners expire."""

import socket
import ssl
import time
from typing import Final

from warrenmq.admin.cluster_protocol import ListenerStatus
from warrenmq.admin.control_protocol import ControlStatus

_TIMEOUT_S: Final = 10.0
_DAY_S: Final = 86_400


def expiring(status: ControlStatus, days: int) -> list[str]:
    """One line for each TLS listener whose certificate expires within `days`, or cannot be read."""
    trusted = str(status.environment.get("ssl_options.cacertfile") or "")
    found = []
    for listener in status.listeners:
        if not listener.protocol.endswith("/ssl"):
            continue
        where = f"{listener.interface or '[::]'}:{listener.port}"
        try:
            ends_s = _end_s(listener, trusted)
        except (OSError, ssl.SSLError) as error:
            found.append(f"{where}: {error}")
            continue
        if ends_s - time.time() <= days * _DAY_S:
            found.append(f"{where}: {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(ends_s))}")
    return found


def _end_s(listener: ListenerStatus, trusted: str) -> float:
    """Unix time at which the listener's certificate ends. Raises OSError, also for an ended one."""
    context = ssl.create_default_context(cafile=trusted or None)
    # The check is about time, not about the name under which clients know the node.
    context.check_hostname = False
    host = "127.0.0.1" if listener.interface in ("", "::", "0.0.0.0") else listener.interface
    with (
        socket.create_connection((host, listener.port), _TIMEOUT_S) as plain,
        context.wrap_socket(plain) as secure,
    ):
        certificate = secure.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
