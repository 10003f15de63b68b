"""Lets readers of the data source use a node in memory, without sockets and without a JVM."""

import pytest

from tests.support.brokers.memory_node import MemoryClient, MemoryNode
from warrenmq.admin.client.client import AdminRefusedError, ReplyType
from warrenmq.admin.protocol.requests import ErrorReply, Fetched, Request
from warrenmq.spark.retry import SourceError

URI = "amqp://guest:guest@memory/"


class MemoryLink:
    """Replaces BrokerLink; `use` exchanges `node` for the node that follows a crash."""

    def __init__(self, node: MemoryNode) -> None:
        self.requests: list[Request] = []
        # True: flip a bit in the last byte of each block, as a bad cable would.
        self.damages_blocks = False
        self.use(node)

    def use(self, node: MemoryNode) -> None:
        """Send further requests to this node."""
        self.node = node
        self.client = MemoryClient(node)

    def request(
        self, request: Request, expected: type[ReplyType], wait_s: float = 0.0
    ) -> ReplyType:
        self.requests.append(request)
        reply = self.client.ask(request)
        if isinstance(reply, ErrorReply):
            raise AdminRefusedError(reply.code, reply.text)
        if isinstance(reply, Fetched) and self.damages_blocks:
            damaged = bytearray(reply.block)
            damaged[-1] ^= 1
            reply = Fetched(reply.next, memoryview(damaged))
        if not isinstance(reply, expected):
            raise SourceError(f"unexpected {reply}")
        return reply


def install(monkeypatch: pytest.MonkeyPatch, node: MemoryNode) -> MemoryLink:
    """Let every reader that is made from here on use `node`."""
    link = MemoryLink(node)
    for module in ("streams.group_session", "batch_reader"):
        monkeypatch.setattr(f"warrenmq.spark.{module}.link_to", lambda *arguments: link)
    # Other processes of the test run have nodes in memory with the same address.
    monkeypatch.setattr("warrenmq.spark.streams.group_session.claim_group", lambda *arguments: None)
    return link
