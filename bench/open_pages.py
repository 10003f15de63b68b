"""`python -m bench.open_pages PORT`: keep the pages of a queue and of storage open.

It sends what a browser sends with both pages open: a sign-in, the whole pages once, and every five
seconds the request of each for its parts that refresh. No browser runs, whose drawing would take
the time of the load generator.
"""

import http
import http.client
import sys
import time
from urllib.parse import urlencode

from bench.visitor import TIMEOUT_S, visit

# The queue of most workloads.
PAGES = ("/queues/%2F/bench-1", "/storage")
PERIOD_S = 5.0
_LOGIN = urlencode({"user": "guest", "password": "guest"})


class OpenPages:
    """The pages in the browser of one user."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cookie = ""
        # Paths of the pages that have been shown whole.
        self._shown: set[str] = set()

    def refresh(self, times_ms: list[float]) -> None:
        """Ask for both pages; append the times (ms) of what was shown."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        if not self._cookie:
            self._sign_in(connection)
        for page in PAGES:
            started_s = time.monotonic()
            headers = {"Cookie": self._cookie}
            if page in self._shown:
                headers["HX-Request"] = "true"
            connection.request("GET", page, headers=headers)
            response = connection.getresponse()
            response.read()
            # Between two rounds there is no such queue.
            if response.status == http.HTTPStatus.OK:
                self._shown.add(page)
                times_ms.append((time.monotonic() - started_s) * 1000)
        connection.close()

    def _sign_in(self, connection: http.client.HTTPConnection) -> None:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", _LOGIN, form)
        response = connection.getresponse()
        response.read()
        self._cookie = (response.getheader("set-cookie") or "").partition(";")[0]


if __name__ == "__main__":
    visit(PERIOD_S, OpenPages(int(sys.argv[1])).refresh)
