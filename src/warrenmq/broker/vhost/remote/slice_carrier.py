"""The carrier of a slice's messages to queues of other nodes, as staged moves see it."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.vhost.remote.copies import CopyWaiter
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.message import MovedMessage


class StagePlace:
    """A stage of this node; its messages below the seq id `settled_below` will not come again."""

    def __init__(self, vhost: bytes, id: i64, settled_below: i64) -> None:
        self.vhost: bytes = vhost
        self.id: i64 = id
        self.settled_below: i64 = settled_below


class Crossing:
    """A staged message on its way to `queues` of one other node.

    `is_known`: a consumer may have had the message before.
    """

    def __init__(self, message: MovedMessage, queues: list[RemoteQueue], is_known: bool) -> None:
        self.message: MovedMessage = message
        self.queues: list[RemoteQueue] = queues
        self.is_known: bool = is_known


@mypyc_attr(allow_interpreted_subclasses=True)
class SliceCarrier:
    """Carries staged messages to other nodes, each once, whatever crashes."""

    def carry(
        self, stage: StagePlace, home: bytes, crossings: list[Crossing], waiter: CopyWaiter
    ) -> None:
        """Carry messages of one stage to the node `home`; `waiter` is called when it has them.

        A message whose queues are all deleted is dropped.
        """
        raise RuntimeError("abstract")

    def finish(self, vhost: bytes, stage_id: i64) -> None:
        """Nothing of the stage will be carried again, not even after a crash."""
        raise RuntimeError("abstract")


class FinishedStage:
    """A stage that is moved; its carrier is told when no start can find its messages again."""

    def __init__(
        self, carrier: SliceCarrier, journal: Journal, vhost: bytes, stage_id: i64
    ) -> None:
        self._carrier: SliceCarrier = carrier
        self._journal: Journal = journal
        self._vhost: bytes = vhost
        self._stage_id: i64 = stage_id

    def watch(self) -> None:
        """Wait for the journal, which has got the acks of the messages."""
        self._journal.when_durable(self.on_batch)

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """Tell the carrier, or wait for the next batch if this one failed."""
        if ok:
            self._carrier.finish(self._vhost, self._stage_id)
        else:
            self.watch()
