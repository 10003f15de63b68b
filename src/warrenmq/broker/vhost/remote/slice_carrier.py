"""The way of a slice's messages to their queues on all nodes, as staged moves see it."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.message_taker import MessageTaker
from warrenmq.store.model.message import Message


class Delivery:
    """A message of a cluster's sink, at `position` there, and the queues that it is routed to.

    `is_known`: a consumer may have had the message before.
    """

    def __init__(
        self, position: i64, message: Message, queues: list[MessageTaker], is_known: bool
    ) -> None:
        self.position: i64 = position
        self.message: Message = message
        self.queues: list[MessageTaker] = queues
        self.is_known: bool = is_known


@mypyc_attr(allow_interpreted_subclasses=True)
class SliceWaiter:
    """Waits until all messages of a slice are in their queues."""

    def on_delivered(self, now_ms: i64) -> None:
        """All queues have their messages for sure, or are deleted; or nobody wants that now."""
        raise RuntimeError("abstract")

    def is_over(self) -> bool:
        """Whether nobody wants the messages delivered any more."""
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class SliceCarrier:
    """Delivers messages of sinks to queues of all nodes, this one too, each once."""

    def carry(
        self, vhost: bytes, sink: bytes, floor: i64, deliveries: list[Delivery], waiter: SliceWaiter
    ) -> None:
        """Deliver messages of the sink with the key `sink`.

        All positions below `floor` are in all of their queues.
        """
        raise RuntimeError("abstract")
