"""A relay that loses answers to what etcd has carried out, and servers that are not etcd."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.support.etcd import HOST


class AnswerLosingRelay:
    """Passes one request after another on to `port`; loses an answer for each `lose_next`."""

    def __init__(self, port: int) -> None:
        self._target = (HOST, port)
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        # Answers to lose.
        self._lost_count = 0
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Wakes `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def lose_next(self, count: int = 1) -> None:
        """Lose the answers to the next `count` requests."""
        self._lost_count = count

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(self._target) as server:
                self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """One exchange; the client then opens another connection."""
        request = read_request(client)
        if not request:
            return
        server.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        answer = b""
        while piece := server.recv(1 << 16):
            answer += piece
        if self._lost_count:
            self._lost_count -= 1
        else:
            client.sendall(answer)


@contextmanager
def slow_watches(delay_s: float) -> Iterator[str]:
    """An etcd at the URL that sends one event of revision 5, `delay_s` after a watch is there."""
    created = b'{"result":{"header":{"revision":"5"},"created":true}}\n'
    event = b'{"result":{"events":[{"kv":{"key":"L2E=","mod_revision":"5"}}]}}\n'

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in (created, event):
                with suppress(OSError):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                is_over.wait(delay_s)
            is_over.wait()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    is_over = threading.Event()
    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield f"http://{HOST}:{server.server_port}"
    is_over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def read_request(client: socket.socket) -> bytes:
    """A request with its body, or what came of it before its sender closed."""
    request = b""
    while piece := client.recv(1 << 16):
        request += piece
        head, end, body = request.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and length is not None and len(body) >= int(length[1]):
            break
    return request


@contextmanager
def answering_once(listener: socket.socket, answer: bytes) -> Iterator[None]:
    """Give `answer` to the next request at `listener`, whatever it is."""

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            read_request(client)
            client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join()
