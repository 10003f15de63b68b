"""Carries staged messages to the homes of their queues, until these have them.

A slice's messages for a node travel in one or more calls. If a call fails, or its answer, all of
them are sent again after a pause: the other node takes each message once
(`broker/vhost/sinks/stand_ins.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.remote.copies import CopyWaiter
from warrenmq.broker.vhost.remote.slice_carrier import Crossing, SliceCarrier, StagePlace
from warrenmq.broker.vhost.sinks.stage import is_stand_in
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.sinks.calls import (
    PIECE_BYTES,
    CarriedMessage,
    CarryPiece,
    CarryRequest,
    CarrySlice,
    FinishStage,
    decode_answer,
    encode_request,
)
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.cluster")

# Pause before a slice is sent again (ms).
_RETRY_MS: Final = 200


class StagedCarrier(SliceCarrier):
    """The carrier of a node; `origin` returns the id of its data directory."""

    def __init__(
        self, broker: Broker, calls: NodeCalls, clock: ClusterClock, origin: Callable[[], str]
    ) -> None:
        self.broker = broker
        self.calls = calls
        self.clock = clock
        self.origin = origin
        # Nodes that have messages of stages that are not finished, by vhost and stage.
        self._nodes: dict[tuple[bytes, int], set[str]] = {}

    def carry(
        self, stage: StagePlace, home: bytes, crossings: list[Crossing], waiter: CopyWaiter
    ) -> None:
        node = name_text(home)
        self._nodes.setdefault((stage.vhost, stage.id), set()).add(node)
        _Journey(self, stage, node, crossings, waiter).begin()

    def finish(self, vhost: bytes, stage_id: int) -> None:
        for node in self._nodes.pop((vhost, stage_id), set()):
            # A lost request does no harm: `oldest` of a later slice says the same.
            request = encode_request(FinishStage(self.origin(), vhost, stage_id))
            self.calls.ask(node, request, self.clock.now_ms(), _nobody_waits)

    def oldest(self, vhost: bytes) -> int:
        """The lowest id of a stage of which messages may be carried again."""
        stages = self.broker.vhosts[vhost].staging.stages
        own = [stage.queue.id for stage in stages.values() if not is_stand_in(stage.sink)]
        return min([*own, *(stage for name, stage in self._nodes if name == vhost)])


class _Journey:
    """Messages of a slice on the way to one node."""

    def __init__(
        self,
        carrier: StagedCarrier,
        stage: StagePlace,
        node: str,
        crossings: list[Crossing],
        waiter: CopyWaiter,
    ) -> None:
        self._carrier = carrier
        self._stage = stage
        self._node = node
        self._crossings = crossings
        self._waiter = waiter
        # Calls of this attempt without an answer, and why one has failed, "" for none.
        self._open = 0
        self._failure = ""
        self._is_told = False

    def begin(self) -> None:
        """Send everything to queues that are there still."""
        carrier = self._carrier
        vhost = carrier.broker.vhosts.get(self._stage.vhost)
        if vhost is None or vhost.staging.is_stopped:
            # The next start, if there is one, carries the messages.
            return
        requests = self._requests()
        if not requests:
            self._waiter.on_copied(carrier.clock.now_ms())
            return
        self._open = len(requests)
        self._failure = ""
        for request in requests:
            call = encode_request(request)
            carrier.calls.ask(self._node, call, carrier.clock.now_ms(), self._on_answer)

    def _requests(self) -> list[CarryRequest]:
        stage, origin = self._stage, self._carrier.origin()
        oldest = self._carrier.oldest(stage.vhost)
        found: list[CarryRequest] = []
        gathered: list[CarriedMessage] = []
        size = 0

        def end_request() -> None:
            nonlocal gathered, size
            if gathered:
                found.append(
                    CarrySlice(origin, stage.vhost, stage.id, oldest, stage.settled_below, gathered)
                )
            gathered, size = [], 0

        for crossing in self._crossings:
            queues = [queue.name for queue in crossing.queues if not _is_gone(queue)]
            if not queues:
                continue
            message = crossing.message
            is_large = len(message.body) > PIECE_BYTES
            if is_large:
                for start in range(0, len(message.body), PIECE_BYTES):
                    data = message.body[start : start + PIECE_BYTES]
                    found.append(
                        CarryPiece(origin, stage.vhost, stage.id, message.origin_seq, start, data)
                    )
            carried = CarriedMessage(
                message.origin_seq,
                queues,
                message.address,
                message.properties,
                b"" if is_large else message.body,
                message.persistent,
                crossing.is_known,
                len(message.body) if is_large else 0,
            )
            more = len(carried.body) + len(carried.properties) + sum(map(len, queues)) + 600
            if size + more > PIECE_BYTES:
                end_request()
            gathered.append(carried)
            size += more
        end_request()
        return found

    def _on_answer(self, answer: bytes, failure: str) -> None:
        self._open -= 1
        self._failure = failure or _failure_of(answer) or self._failure
        if self._open > 0:
            return
        if not self._failure:
            self._waiter.on_copied(self._carrier.clock.now_ms())
            return
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "a batch of a sink waits for node %s, which has queues of it: %s",
                self._node,
                self._failure,
            )
        self._carrier.clock.call_later(_RETRY_MS, self.begin)


def _failure_of(answer: bytes) -> str:
    try:
        return decode_answer(answer).failure
    except msgspec.DecodeError:
        return "the node has an earlier version"


def _is_gone(queue: RemoteQueue) -> bool:
    return queue.is_deleted


def _nobody_waits(_answer: bytes, _failure: str) -> None:
    """Ignore the outcome of a FinishStage."""
