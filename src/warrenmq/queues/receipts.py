"""The receipts of a mirrored queue: which messages of each sink of the cluster it has got.

The position of a message counts on from batch to batch of its sink, so it names the message.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.model.message import Message, MovedMessage, QueueLedger
from warrenmq.store.model.runs import Runs

# Positions from the floor on that a book can have: four times what a mover has under way.
POSITIONS_MAX: Final = 65_536


@final
class SinkReceipts:
    """What a queue has got of the sink with the key `sink`, as its master tells the copies.

    All positions below `floor` are in all of their queues, and those in `runs` are in this one.
    """

    def __init__(self, sink: bytes, floor: i64, runs: Runs) -> None:
        self.sink: bytes = sink
        self.floor: i64 = floor
        self.runs: Runs = runs


@mypyc_attr(allow_interpreted_subclasses=True)
class ReceiptHost:
    """The books of receipts of a vhost, as its mirrored queues need them."""

    def sink_of(self, message: Message) -> bytes:
        """The key of the sink that `message` comes from, and of whose book its MOVE is; else b"".

        The position of the message is its `origin_seq` then.
        """
        raise RuntimeError("abstract")

    def receipts_of(self, ledger: QueueLedger) -> list[SinkReceipts]:
        """The receipts of the queue of `ledger`, for its copies on other nodes."""
        raise RuntimeError("abstract")

    def follow(self, ledger: QueueLedger, told: list[SinkReceipts], is_lacking: bool) -> bool:
        """Let the hidden copy of `ledger` have these receipts, and no others, as its master has.

        `is_lacking`: it gets none that it has not, as it may lack their messages. True: something
        is new, and the journal batch that gathers has it, like the messages that are new there.
        """
        raise RuntimeError("abstract")

    def received(
        self, ledger: QueueLedger, sink: bytes, position: i64, message: Message
    ) -> MovedMessage | None:
        """Note that the copy of `ledger` gets a message of a sink now.

        Returns what to publish to it instead, so that message and receipt are one record of the
        journal. None: the copy has a receipt for it already.
        """
        raise RuntimeError("abstract")
