"""`python -m bench.asked_api PORT` asks for a page of queues every second, as dashboards do."""

import http
import http.client
import sys
import time
from base64 import b64encode

from bench.visitor import TIMEOUT_S, visit

PAGE = "/api/queues?page=1&page_size=100"
PERIOD_S = 1.0
_AUTHORIZATION = f"Basic {b64encode(b'guest:guest').decode()}"


def _ask(port: int, times_ms: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    started_s = time.monotonic()
    connection.request("GET", PAGE, headers={"Authorization": _AUTHORIZATION})
    response = connection.getresponse()
    response.read()
    if response.status == http.HTTPStatus.OK:
        times_ms.append((time.monotonic() - started_s) * 1000)
    connection.close()


if __name__ == "__main__":
    visit(PERIOD_S, lambda times_ms: _ask(int(sys.argv[1]), times_ms))
