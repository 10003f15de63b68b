"""Requests for reader groups of one queue, in few words."""

from dataclasses import dataclass

from tests.support.brokers.memory_node import MemoryClient
from warrenmq.admin.protocol import Ack, GroupOpened, OpenGroup, Reserve, Reserved

MANY = 1 << 40


@dataclass(frozen=True)
class OneQueue:
    """A group as it was opened."""

    name: str
    epoch: int
    incarnation: int
    acked: int
    reserved: int

    def reserve(
        self,
        start: int,
        max_messages: int = MANY,
        max_bytes: int = MANY,
        wait_ms: int = 0,
        until: int = MANY,
    ) -> Reserve:
        """From `start` on."""
        return Reserve(
            self.name,
            self.epoch,
            {self.incarnation: start},
            max_messages,
            max_bytes,
            wait_ms=wait_ms,
            until={self.incarnation: until},
        )

    def ack(self, end: int) -> Ack:
        """Below `end`."""
        return Ack(self.name, self.epoch, {self.incarnation: end})


def one_queue(reply: object, name: str = "g") -> OneQueue:
    """The answer to an OpenGroup."""
    assert isinstance(reply, GroupOpened), reply
    (member,) = reply.members
    return OneQueue(name, reply.epoch, member.incarnation, member.acked, member.reserved)


def open_one(client: MemoryClient, name: str = "g", queue: bytes = b"q") -> OneQueue:
    """Open the group."""
    return one_queue(client.must(OpenGroup(name, [queue])), name)


def end_of(reply: object) -> int:
    """Where the one range of a reserve ends."""
    assert isinstance(reply, Reserved), reply
    (member,) = reply.members
    return member.end
