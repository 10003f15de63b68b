"""Bugs planted in sinks of a simulated cluster."""

from __future__ import annotations

import pytest

from tests.simulator.planted_reader_bugs import Planted
from warrenmq.broker.definitions.metadata import PutSink
from warrenmq.broker.vhost.sinks.receipt_book import ReceiptBook
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.sinks.carrier import _Journey
from warrenmq.cluster.sinks.sink_row import copies_of, sink_key
from warrenmq.cluster.sinks.sinks import ClusterSinks
from warrenmq.queues.receipts import SinkReceipts
from warrenmq.store.model.message import JournalFile, Message, QueueLedger
from warrenmq.store.model.runs import contains


def keep_receipts(patch: pytest.MonkeyPatch) -> None:
    """The copies of a mirrored queue are not told which messages of sinks it has got."""

    def none_of(self: Receipts, ledger: QueueLedger) -> list[SinkReceipts]:
        return []

    def no_sink(self: Receipts, message: Message) -> bytes:
        return b""

    patch.setattr(Receipts, "receipts_of", none_of)
    patch.setattr(Receipts, "sink_of", no_sink)


def ignore_the_floor(patch: pytest.MonkeyPatch) -> None:
    """A book of receipts knows what is above its floor only."""

    def has(self: ReceiptBook, position: int) -> bool:
        is_new = position in self.moved or position in self.pending
        return is_new or contains(self.listed, position)

    patch.setattr(ReceiptBook, "has", has)


def forget_receipts(patch: pytest.MonkeyPatch) -> None:
    """A start does not look in the journal for messages that queues have got."""

    def forget(self: Receipts, moved: dict[int, dict[int, JournalFile]]) -> None:
        """Do nothing."""

    patch.setattr(Receipts, "restore_moved", forget)


def mark_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a lost master may have handed out is sent to the next one as if nobody had it."""
    on_taken = _Journey.on_taken

    def taken(self: _Journey, failure: str, may_be_known: bool) -> None:
        on_taken(self, failure, False)

    follow = ClusterSinks.follow

    def followed(self: ClusterSinks, vhost: Vhost, row: PutSink) -> None:
        follow(self, vhost, row)
        for stage in vhost.staging.sinks[row.name].stages:
            stage.is_repeated = False

    patch.setattr(_Journey, "on_taken", taken)
    patch.setattr(ClusterSinks, "follow", followed)


def take_nothing_over(patch: pytest.MonkeyPatch) -> None:
    """Nobody publishes a batch instead of a node that is dead."""
    patch.setattr(ClusterSinks, "_take_over", lambda self, row, copies: None)


def move_on(patch: pytest.MonkeyPatch) -> None:
    """All nodes with the stages of a batch publish it, whoever is to."""
    follow = ClusterSinks.follow

    def follow_and_move(self: ClusterSinks, vhost: Vhost, row: PutSink) -> None:
        follow(self, vhost, row)
        copies = copies_of(row)
        stages = self._stages(vhost, row, copies)
        sink = vhost.staging.sinks[row.name]
        if stages is None or sink.stages:
            return
        before_first = row.before_first
        for stage in stages:
            stage.sink_key = sink_key(row)
            stage.before_first = before_first
            before_first += stage.message_count
        sink.stages = stages
        vhost.staging.mover.begin(sink)

    patch.setattr(ClusterSinks, "follow", follow_and_move)


PLANTED: dict[str, Planted] = {
    "receipts that copies are not told": Planted(keep_receipts, 5),
    "a floor that is ignored": Planted(ignore_the_floor, 204),
    "receipts that a crash takes": Planted(forget_receipts, 5),
    "messages that a lost master has handed out": Planted(mark_nothing, 330253),
}
