"""Short requests for reader groups of one queue."""

from dataclasses import dataclass

from tests.support.brokers.memory_node import MemoryClient
from warrenmq.admin.protocol.requests import Ack, GroupOpened, OpenGroup, Reserve, Reserved

MANY = 1 << 40


@dataclass(frozen=True)
class OneQueue:
    """A reader group as its opening reported it."""

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
        """A request that reserves from seq id `start` on."""
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
        """A request that acks everything below seq id `end`."""
        return Ack(self.name, self.epoch, {self.incarnation: end})


def one_queue(reply: object, name: str = "g") -> OneQueue:
    """The group that the reply to an OpenGroup describes."""
    assert isinstance(reply, GroupOpened), reply
    (member,) = reply.members
    return OneQueue(name, reply.epoch, member.incarnation, member.acked, member.reserved)


def open_one(client: MemoryClient, name: str = "g", queue: bytes = b"q") -> OneQueue:
    """Open a group of one queue."""
    return one_queue(client.must(OpenGroup(name, [queue])), name)


def end_of(reply: object) -> int:
    """The end of the one range of a reserve."""
    assert isinstance(reply, Reserved), reply
    (member,) = reply.members
    return member.end
