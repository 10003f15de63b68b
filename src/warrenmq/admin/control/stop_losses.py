"""The messages that a mirrored queue loses when one of its nodes stops at this moment."""

from __future__ import annotations

from warrenmq.admin.protocol.mirrors import StopLoss
from warrenmq.broker.mirrors import UNKNOWN, CopyFacts, MirrorFacts


def lost_if_stops(facts: MirrorFacts, messages: int, transient: int) -> dict[str, StopLoss]:
    """By node with a living copy, what the queue loses when it stops.

    The queue has `messages`, of which `transient` do not outlive a restart of their node.
    """
    losses = {copy.node: _without_mirror(facts, copy) for copy in facts.mirrors}
    if facts.is_down:
        return losses
    return {facts.master: _without_master(facts, messages, transient), **losses}


def _without_master(facts: MirrorFacts, messages: int, transient: int) -> StopLoss:
    online = [copy for copy in facts.mirrors if copy.is_online]
    synchronised = [copy for copy in online if copy.is_synced]
    if synchronised:
        return StopLoss(0, f"nothing: {synchronised[0].node} takes over")
    if online and facts.promotes_unsynced:
        heir = online[0]
        lost = None if heir.lag_messages == UNKNOWN else min(heir.lag_messages, messages)
        shown = "messages" if lost is None else f"{lost} messages"
        return StopLoss(lost, f"{shown}: {heir.node}, which is not synchronised, takes over")
    text = f"the queue is down until {facts.master} is back, with {messages - transient} messages"
    if transient:
        text += f"; {transient} transient messages are lost"
    return StopLoss(transient, text)


def _without_mirror(facts: MirrorFacts, stopped: CopyFacts) -> StopLoss:
    if not stopped.is_synced:
        return StopLoss(0, "nothing")
    others = [copy for copy in facts.mirrors if copy.is_synced and copy is not stopped]
    # The master is a synchronised copy, too.
    left = len(others) + (0 if facts.is_down else 1)
    if left < facts.min_sync:
        return StopLoss(
            0, f"no message; publishes are refused until {facts.min_sync} copies are synchronised"
        )
    if not others and not facts.is_down:
        return StopLoss(0, f"nothing; {facts.master} then has the only synchronised copy")
    return StopLoss(0, "nothing")
