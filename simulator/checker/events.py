"""The events of a history, in the order in which one recorder saw them.

All moments (`at_us`) are microseconds of the system's monotonic clock, which all processes of a
machine share. What a client does is recorded before it is sent; what it receives is recorded on
arrival. A *session* is one channel with one consumer, or the channel of one publisher; its name is
never used again.
"""

from __future__ import annotations

from typing import Final

import msgspec

# The version of the format; a history of a newer one is refused.
FORMAT: Final = 2
# How a session may end: closed by the client, by a broken connection, or cancelled by the broker.
CLOSED: Final = "closed"
LOST: Final = "lost"
CANCELLED: Final = "cancelled"


class Event(msgspec.Struct, frozen=True, tag_field="event", gc=False):
    """Something that happened at a moment."""

    at_us: int


class Header(Event, frozen=True, tag="history", gc=False):
    """The first event of a file; `wall_s` is the time of day in seconds since 1970."""

    format: int
    wall_s: float


class Publish(Event, frozen=True, tag="publish", gc=False):
    """A message is about to be sent to `queues`; its body has the CRC-32 `crc`.

    `sequence` grows within the session of a publisher. `levels`: the message's level in each of its
    queues, where levels are served in turn and keep an order each; empty: 0 everywhere.
    """

    message: str
    publisher: str
    session: str
    sequence: int
    queues: tuple[str, ...]
    crc: int
    levels: tuple[int, ...] = ()

    def level_in(self, queue: str) -> int:
        """The message's level in a queue."""
        if not self.levels or queue not in self.queues:
            return 0
        return self.levels[self.queues.index(queue)]


class Confirm(Event, frozen=True, tag="confirm", gc=False):
    """The broker confirmed a message."""

    message: str


class Nack(Event, frozen=True, tag="nack", gc=False):
    """The broker refused a message."""

    message: str


class Return(Event, frozen=True, tag="return", gc=False):
    """The broker returned a message as unroutable; `code` is the reply code."""

    message: str
    code: int


class SessionStart(Event, frozen=True, tag="session start", gc=False):
    """A consumer is about to subscribe to `queue` through `node`; `prefetch` 0 has no limit.

    `is_single`: the queue feeds only one of its consumers at a time.
    """

    session: str
    queue: str
    node: str
    prefetch: int
    is_single: bool = False


class SessionEnd(Event, frozen=True, tag="session end", gc=False):
    """A consumer's session is over; `reason` is CLOSED, LOST or CANCELLED."""

    session: str
    reason: str


class Delivery(Event, frozen=True, tag="delivery", gc=False):
    """A consumer received a message; `tag` is its delivery tag, `crc` that of its body."""

    session: str
    tag: int
    message: str
    redelivered: bool
    crc: int


class Ack(Event, frozen=True, tag="ack", gc=False):
    """A consumer is about to ack one delivery; a multiple ack is one event for each message."""

    session: str
    tag: int


class Requeue(Event, frozen=True, tag="requeue", gc=False):
    """A consumer is about to reject one delivery with requeue."""

    session: str
    tag: int


class Reject(Event, frozen=True, tag="reject", gc=False):
    """A consumer is about to reject one delivery, which makes a dead letter for `letters`."""

    session: str
    tag: int
    letters: str


class Removal(Event, frozen=True, tag="removal", gc=False):
    """A queue was purged or deleted: somebody asked at `asked_us`, and got an answer or none."""

    queue: str
    asked_us: int
    is_answered: bool


class SyncCall(Event, frozen=True, tag="sync call", gc=False):
    """A consumer is about to send a synchronous method, after all its acks so far."""

    session: str


class SyncReply(Event, frozen=True, tag="sync reply", gc=False):
    """The synchronous call of a session succeeded: the broker has seen the acks before the call."""

    session: str


class PublishingEnd(Event, frozen=True, tag="publishing end", gc=False):
    """No publisher publishes any more."""


class QueueDrained(Event, frozen=True, tag="queue drained", gc=False):
    """A queue is empty and has no consumers: what it still had was delivered before."""

    queue: str


class FaultStart(Event, frozen=True, tag="fault start", gc=False):
    """A fault begins; `fault` is a name of its own, `kind` and `node` say what and where.

    gap_limit_ms: longest time without a confirm that the fault may cause (None: any). A *lone
    crash* ends a node that has the only copy of `queues` (empty: of all queues): it may forget
    which of their messages were handed out, and mark messages as redelivered that nobody had.
    `keeps_packets`: what a broker has sent to its clients, perhaps through another node, may arrive
    only after the fault. `hands_over`: masters that leave have others take over in good order, so
    only messages that were handed out are marked as redelivered.
    """

    fault: str
    kind: str
    node: str
    gap_limit_ms: int | None = None
    is_lone_crash: bool = False
    queues: tuple[str, ...] = ()
    keeps_packets: bool = False
    hands_over: bool = False


class FaultEnd(Event, frozen=True, tag="fault end", gc=False):
    """A fault is over: the node was started again, the network is whole."""

    fault: str


class MasterReport(Event, frozen=True, tag="master", gc=False):
    """A node says that it is the master of a queue in an epoch."""

    queue: str
    epoch: int
    node: str


class EpochConfirm(Event, frozen=True, tag="epoch confirm", gc=False):
    """A node says that it confirmed messages of a queue as its master in an epoch."""

    queue: str
    epoch: int
    node: str


class CopyMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message in a copy of a queue: its position, its id, the CRC-32 of its body, its flag."""

    seq: int
    message: str
    crc: int
    redelivered: bool


class CopyReport(Event, frozen=True, tag="copy", gc=False):
    """A copy of a queue, while nothing changes; reports with the same `round` are compared."""

    round: int
    queue: str
    node: str
    is_in_sync: bool
    messages: tuple[CopyMessage, ...]


AnyEvent = (
    Header
    | Publish
    | Confirm
    | Nack
    | Return
    | SessionStart
    | SessionEnd
    | Delivery
    | Ack
    | Requeue
    | Reject
    | Removal
    | SyncCall
    | SyncReply
    | PublishingEnd
    | QueueDrained
    | FaultStart
    | FaultEnd
    | MasterReport
    | EpochConfirm
    | CopyReport
)
