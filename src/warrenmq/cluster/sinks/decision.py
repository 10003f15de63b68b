"""One decision about a sink that somebody waits for: a commit or a deletion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.vhost.sinks.sink_rows import CHANGED, COMMITTED, UNANSWERED, Committed
from warrenmq.cluster.decision_store import (
    DECIDE_MS,
    LOOK_AGAIN_MS,
    RETRY_MS,
    ClusterClock,
    CommitResult,
    DecisionStore,
)
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.metadata.conditions import Condition

_NOT_FOLLOWED: Final = "the cluster has changed the sink, and this node has not followed that"


@dataclass(frozen=True)
class SinkContext:
    """What decisions about sinks rely on: the node `name`, and the definitions it has followed.

    `when_followed` is that of its `Follower`.
    """

    name: bytes
    copy: DefinitionsCopy
    store: DecisionStore
    clock: ClusterClock
    when_followed: Callable[[int, Callable[[], None]], None]


class SinkDecision:
    """Makes `change` of the sink at `place` (vhost, name) if the `conditions` hold.

    They rely on the row that this node knows. `done` is called once: with COMMITTED when this node
    has followed the change, with CHANGED when it has followed another one, so that the caller looks
    again. An attempt whose outcome is unknown is repeated; the conditions let one succeed.
    """

    def __init__(
        self,
        context: SinkContext,
        place: tuple[bytes, bytes],
        conditions: list[Condition],
        change: Change,
        done: Committed,
    ) -> None:
        self._context = context
        self._place = place
        self._base = context.copy.sinks.get(place)
        self._conditions = conditions
        self._change = change
        self._done = done
        self._deadline_ms = context.clock.now_ms() + DECIDE_MS

    def attempt(self) -> None:
        """Propose the change, unless this node has followed another one by now."""
        if self._context.copy.sinks.get(self._place) is not self._base:
            self._done(CHANGED, "")
        else:
            self._context.store.commit(self._conditions, [self._change], self._on_result)

    def _on_result(self, result: CommitResult) -> None:
        if result.revision:
            self._context.when_followed(result.revision, lambda: self._done(COMMITTED, ""))
        elif result.failure:
            self._try_again(RETRY_MS, result.failure)
        else:
            self._try_again(LOOK_AGAIN_MS, _NOT_FOLLOWED)

    def _try_again(self, pause_ms: int, reason: str) -> None:
        if self._context.clock.now_ms() + pause_ms > self._deadline_ms:
            self._done(UNANSWERED, reason)
        else:
            self._context.clock.call_later(pause_ms, self.attempt)
