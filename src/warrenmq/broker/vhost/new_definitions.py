"""Stores the definitions of new exchanges, queues and bindings; takes back what cannot be stored.

A new thing is in memory first, so that the next method of its client finds it, and is stored then.
A definition that is not stored must not outlive its refusal: the thing is removed as if it were
deleted, with everything that was declared on it meanwhile.
"""

from __future__ import annotations

from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.queues.queue import Queue
from warrenmq.routing.exchange import Binding, Exchange
from warrenmq.store.journal.change_sets import ChangeSet

New = Exchange | Queue | Binding


def store_new(vhost: VhostQueues, made: list[New], changes: list[Change]) -> ChangeSet:
    """Store `changes`, the definitions of `made`; take all of `made` back if that fails.

    A callback that is appended to the returned change set finds that done.
    """
    change_set = vhost.store_changes(changes, False)
    # The ends of a binding may be new as well, and refused.
    ends: list[object] = []
    for each in made:
        if isinstance(each, Binding):
            ends += (each.source, each.destination)
    needs = [vhost.unstored[end] for end in ends if end in vhost.unstored]
    change_set.needs = list(dict.fromkeys(needs))
    for each in made:
        vhost.unstored[each] = change_set

    def on_stored(ok: bool, now_ms: int) -> None:
        for stored in made:
            del vhost.unstored[stored]
        if not ok:
            for refused in reversed(made):
                _take_back(vhost, refused, now_ms)

    change_set.callbacks.append(on_stored)
    return change_set


def _take_back(vhost: VhostQueues, made: New, now_ms: int) -> None:
    """Delete `made`, unless a client has deleted it meanwhile."""
    router = vhost.router
    if isinstance(made, Queue):
        vhost.delete_queue(made, now_ms)
    elif isinstance(made, Exchange):
        if router.exchanges.get(made.name) is made:
            vhost.add_changes(vhost.forget(router.delete_exchange(made)))
    elif made in made.destination.incoming:
        removed = router.unbind(made.source, made.destination, made.key, made.arguments)
        if removed is not None:
            vhost.add_changes(vhost.forget(removed))
