"""A node of a cluster that speaks the admin protocol over a real socket, and obeys its test."""

import contextlib
import socket
import threading
from collections.abc import Callable

from warrenmq.admin.protocol.homes import LocateQueues, NodePlace, QueuesLocated
from warrenmq.admin.protocol.requests import (
    LENGTH_BYTES,
    PROTOCOL_HEADER,
    ErrorReply,
    LoggedIn,
    Login,
    Reply,
    Request,
    decode_request,
    encode_frame,
)
from warrenmq.admin.protocol.sinks import (
    AbortStages,
    BatchCommitted,
    CommitBatch,
    FinishStage,
    OpenStage,
    Staged,
    StageFinished,
    StageMessages,
    StageOpened,
    StagesAborted,
)

HOST = "127.0.0.1"


class FakeNode:
    """Answers all requests of writers, and notes them; `act` may answer others, or end the node."""

    def __init__(self, name: str, cluster: "list[FakeNode]", is_draining: bool = False) -> None:
        self.name = name
        self.is_draining = is_draining
        self.requests: list[Request] = []
        # Called with each request; its reply, if there is one, goes out.
        self.act: Callable[[Request], Reply | None] = lambda request: None
        self.is_running = True
        self._cluster = cluster
        self._opened: list[socket.socket] = []
        self._stages = 0
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        cluster.append(self)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"amqp://{HOST}:{self.port}"

    def kind(self, wanted: type[Request]) -> list[Request]:
        """The requests of one kind that it has got."""
        return [request for request in self.requests if isinstance(request, wanted)]

    def die(self) -> None:
        """Close all connections, and refuse new ones."""
        self.is_running = False
        for each in (self._listener, *self._opened):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            self._opened.append(opened)
            threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        try:
            with opened, opened.makefile("rb") as stream:
                assert stream.read(len(PROTOCOL_HEADER)) == PROTOCOL_HEADER
                while head := stream.read(LENGTH_BYTES):
                    request = decode_request(stream.read(int.from_bytes(head, "big")))
                    if not isinstance(request, Login | LocateQueues):
                        self.requests.append(request)
                    reply = self.act(request) or self._reply(request)
                    if not self.is_running:
                        return
                    opened.sendall(encode_frame(reply))
        except (OSError, ValueError):
            return

    def _reply(self, request: Request) -> Reply:
        match request:
            case Login():
                return LoggedIn("1")
            case LocateQueues():
                return QueuesLocated(self.name, self._places(), [])
            case OpenStage():
                self._stages += 1
                return StageOpened(self.port * 10 + self._stages, 1 << 20)
            case StageMessages():
                return Staged(1)
            case FinishStage():
                return StageFinished(0)
            case CommitBatch():
                return BatchCommitted(False, True)
            case AbortStages(stages):
                return StagesAborted(len(stages))
        return ErrorReply("bad_request", "unknown")

    def _places(self) -> list[NodePlace]:
        running = [node for node in self._cluster if node.is_running]
        return [
            NodePlace(node.name, f"id-{node.name}", [("amqp", HOST, node.port)], node.is_draining)
            for node in sorted(running, key=lambda node: node.name)
        ]
