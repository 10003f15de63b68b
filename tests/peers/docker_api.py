"""Answers a suite that starts its broker with Docker: the broker of the run is every container.

Of Docker's HTTP API only the calls that start and inspect a container have a meaning here; all
others succeed. The ports of a container are the standard ones of the run's namespace.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.peers.suites import AMQP_PORT, AMQPS_PORT, DOCKER_PORT

_PORTS: Final = {
    f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]
    for port in (AMQP_PORT, AMQPS_PORT)
}
_CONTAINER: Final = {"Id": "the-broker-of-this-run", "NetworkSettings": {"Ports": _PORTS}}


class _Calls(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        body = json.dumps(_CONTAINER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Inspect a container."""
        self._answer()

    def do_POST(self) -> None:
        """Pull an image; create, start, stop or kill a container."""
        self._answer()

    def do_DELETE(self) -> None:
        """Remove a container."""
        self._answer()

    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing."""


def serve() -> ThreadingHTTPServer:
    """Serve until the caller calls `shutdown`."""
    server = ThreadingHTTPServer(("127.0.0.1", DOCKER_PORT), _Calls)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
