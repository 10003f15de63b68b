"""Bugs planted in a cluster of simulated nodes; each replaces one method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from warrenmq.broker.definitions.metadata import (
    NO_BIRTH,
    Change,
    Definitions,
    DeleteBinding,
    PutBinding,
)
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decision_store import CommitResult
from warrenmq.cluster.decisions.decisions import ClusterDefinitions
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.membership.own_definitions import own_definitions
from warrenmq.cluster.queue_ends import QueueEnds
from warrenmq.cluster.remote.link_events import LinkUnacked, PartyOutcomes
from warrenmq.queues.entry import Entry
from warrenmq.queues.remote.consumer import RemoteConsumer
from warrenmq.queues.remote.link_records import DONE
from warrenmq.queues.remote.session import RemoteEntry, RemoteSession
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.store.model.message import QueueLedger

# Decisions with which a history begins, before its steps.
SETTLED = 20


def confirm_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    """A publish of another node is confirmed before the disk of the queue's node has it."""

    def at_once(self: PartyOutcomes, batch: ConfirmParty, number: int) -> None:
        self.report(number, number, DONE)

    patch.setattr(PartyOutcomes, "wait_for", at_once)


def confirm_on_link_loss(patch: pytest.MonkeyPatch) -> None:
    """Publishes that are on their way when a link goes down are confirmed."""
    end = RemoteSession.end

    def confirm_all(self: RemoteSession, now_ms: int) -> None:
        self._finish(1, self._last_party, DONE)
        end(self, now_ms)

    patch.setattr(RemoteSession, "end", confirm_all)


def settle_too_much(patch: pytest.MonkeyPatch) -> None:
    """An ack settles the message behind its own as well, which may be another consumer's."""
    take = LinkUnacked.take

    def take_one_more(self: LinkUnacked, ledger: QueueLedger, first: int, last: int) -> list[Entry]:
        return take(self, ledger, first, last + 1)

    patch.setattr(LinkUnacked, "take", take_one_more)


def forget_the_unacked(patch: pytest.MonkeyPatch) -> None:
    """What a link has delivered stays unacked when the link goes down."""
    patch.setattr(LinkUnacked, "take_rest", lambda self: [])


def skip_a_decision(patch: pytest.MonkeyPatch) -> None:
    """One in eight decisions is not followed."""
    follow = Follower.follow

    def skip(self: Follower, revision: int, changes: list[Change]) -> None:
        follow(self, revision, [] if revision > SETTLED and revision % 8 == 0 else changes)

    patch.setattr(Follower, "follow", skip)


def keep_bindings(patch: pytest.MonkeyPatch) -> None:
    """A node follows bindings, and the end of none."""
    follow = Follower._follow_binding

    def skip(self: Follower, vhost: Vhost, change: PutBinding | DeleteBinding) -> None:
        if isinstance(change, PutBinding):
            follow(self, vhost, change)

    patch.setattr(Follower, "_follow_binding", skip)


def adopt_an_old_life(patch: pytest.MonkeyPatch) -> None:
    """A start takes a row for the queue of its name, whatever life that lives."""

    def adopt(
        rows: Definitions, shared: Definitions, node: bytes
    ) -> tuple[Definitions, list[Change]]:
        for row in rows.queues:
            row.birth = NO_BIRTH
        return own_definitions(rows, shared, node)

    patch.setattr("simulator.cluster.member.own_definitions", adopt)


def exceed_the_prefetch(patch: pytest.MonkeyPatch) -> None:
    """A consumer of another node gets one message more than its prefetch."""
    of_prefetch = RemoteConsumer._wanted

    def one_more(self: RemoteConsumer) -> int:
        return of_prefetch(self) + 1

    def take(self: RemoteConsumer, entry: RemoteEntry, now_ms: int) -> None:
        self._credit -= 1
        self._hand_over(entry)

    patch.setattr(RemoteConsumer, "_wanted", one_more)
    patch.setattr(RemoteConsumer, "take", take)


def take_an_unknown_outcome_for_none(patch: pytest.MonkeyPatch) -> None:
    """A removal without an answer counts as decided."""
    on_removed = ClusterDefinitions._on_removed

    def never_repeat(self: ClusterDefinitions, result: CommitResult) -> None:
        on_removed(self, CommitResult(result.revision))

    patch.setattr(ClusterDefinitions, "_on_removed", never_repeat)


def keep_transient_queues_of_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Nobody removes the transient queues of a node that is dead."""
    patch.setattr(QueueEnds, "remove_transient", lambda self, running: None)


@dataclass(frozen=True)
class Planted:
    """A bug: how to plant it, and the kinds of violations that mean it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    kinds: tuple[str, ...]
    # The seed from which on it is searched.
    first: int = 1


PLANTED: dict[str, Planted] = {
    "a confirm before the disk of the queue's node": Planted(confirm_before_the_disk, ("lost",)),
    "a confirm of what a link has lost": Planted(confirm_on_link_loss, ("lost",)),
    "an ack that settles another message": Planted(settle_too_much, ("settled", "lost")),
    "unacked messages of a dead link": Planted(forget_the_unacked, ("held", "AssertionError")),
    "a decision that is not followed": Planted(
        skip_a_decision, ("other queues", "other bindings", "other exchanges")
    ),
    "an end of a binding that is not followed": Planted(keep_bindings, ("other bindings",)),
    "a row that adopts another life of its queue": Planted(adopt_an_old_life, ("ghost",)),
    "a consumer with more than its prefetch": Planted(exceed_the_prefetch, ("prefetch",)),
    "a removal that is not repeated": Planted(
        take_an_unknown_outcome_for_none, ("other queues", "other bindings", "other exchanges"), 35
    ),
    "transient queues of a dead node": Planted(keep_transient_queues_of_the_dead, ("transient",)),
}
