"""A relay that loses answers to what etcd has carried out, and a server that is not etcd."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
