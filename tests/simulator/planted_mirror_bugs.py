"""Bugs planted in a cluster with mirrored queues, each with a history that finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from simulator.cluster.histories import ClusterHistory
from simulator.cluster.recording.features import (
    DEAD_MIRRORS,
    FREEZE_MIRROR,
    HEAL_LINKS_FIRST,
    QUIET_RETURN,
)
from simulator.leaving.histories import QueueRules, Step
from simulator.simulated.node import Limits
from tests.simulator.planted_reader_bugs import hide_losses
from warrenmq.broker.definitions.metadata import PutSink
from warrenmq.broker.vhost.handovers import dead_letters
from warrenmq.broker.vhost.handovers.dead_letters import DeadLetters
from warrenmq.broker.vhost.sinks.receipt_book import ReceiptBook
from warrenmq.cluster.decisions.placement import CLIENT_LOCAL
from warrenmq.cluster.groups.group import Group, Member
from warrenmq.cluster.mirrors.gates import Gates
from warrenmq.cluster.mirrors.records import Heard
from warrenmq.cluster.mirrors.replica.host import ReplicaHost
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.cluster.mirrors.replica.replica import Replica
from warrenmq.cluster.mirrors.silences import MASTER_SILENT_MS
from warrenmq.cluster.sinks import rows, sink_row
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.hand_out_gate import OPEN, HandOutGate
from warrenmq.queues.leave_reason import PURGED
from warrenmq.queues.leveled_queue import LeveledQueue, PriorityLevels
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.backing import MirrorBacking
from warrenmq.queues.mirror.ring_feed import EPOCH_GAP, LevelFeed
from warrenmq.queues.settings import LengthLimit
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs


def step(kind: str, *values: int | str) -> Step:
    """A step of a history."""
    return Step(kind, values, 1)


def policy(pattern: str, copies: int, sync_mode: str = "automatic", **more: str) -> str:
    """A policy that mirrors queues; `more`: other keys, with _ for -."""
    definition = {"ha-mode": "exactly", "ha-params": copies, "ha-sync-mode": sync_mode}
    definition |= {key.replace("_", "-"): value for key, value in more.items()}
    value = {"pattern": pattern, "apply-to": "queues", "priority": 0, "definition": definition}
    return json.dumps(value)


def history(
    nodes: int, value: str, steps: list[Step], rules: tuple[QueueRules, ...] = ()
) -> ClusterHistory:
    """A history in which a policy mirrors queues from the beginning."""
    policies = (("ha", value),) if value else ()
    return ClusterHistory(
        1, nodes, CLIENT_LOCAL, 0.9, Limits(), tuple(steps), policies=policies, rules=rules
    )


def publish(node: int, queue: int, count: int = 3) -> Step:
    """A step that publishes persistent messages to a queue."""
    return step("publish", node, -1, queue, count, 50, 1, 0)


def count_less_as_as_much(patch: pytest.MonkeyPatch) -> None:
    """A mirror counts as complete that has heard less of earlier masters than the new one."""
    patch.setattr(Heard, "__ge__", lambda self, other: True)


def keep_the_tail_in_the_ring(patch: pytest.MonkeyPatch) -> None:
    """A new epoch does not settle what mirrors alone have got of the last one."""
    settle = LevelFeed.settled_runs

    def keep(self: LevelFeed, runs: Runs, reason: int) -> None:
        if reason != PURGED or len(runs) != 1 or (runs[0][1] + 1) % EPOCH_GAP:
            settle(self, runs, reason)

    patch.setattr(LevelFeed, "settled_runs", keep)


def keep_the_tail_in_a_sync(patch: pytest.MonkeyPatch) -> None:
    """A mirror that is synchronised keeps what its master has not."""
    patch.setattr(MirrorApplier, "settle", lambda self, level, runs, now_ms: None)


def forget_expiry(patch: pytest.MonkeyPatch) -> None:
    """A mirror keeps its messages for ever."""
    publish_at = MirrorBacking.publish_at

    def keep(
        self: MirrorBacking, seq: int, message: Message, expiry_ms: int, flag: bool, now_ms: int
    ) -> bool:
        return publish_at(self, seq, message, 0, flag, now_ms)

    patch.setattr(MirrorBacking, "publish_at", keep)


def expire_early(patch: pytest.MonkeyPatch) -> None:
    """Messages expire after a thousandth of their time."""
    patch.setattr("warrenmq.queues.queue.lower_limit", lambda one, other: max(one, other) // 1000)


def drop_one_more(patch: pytest.MonkeyPatch) -> None:
    """A limit keeps a message less than it says."""
    is_exceeded = LengthLimit.is_exceeded

    def exceeded(self: LengthLimit, messages: int, body_bytes: int) -> bool:
        return is_exceeded(self, messages + 1, body_bytes)

    patch.setattr(LengthLimit, "is_exceeded", exceeded)


def turn_levels_round(patch: pytest.MonkeyPatch) -> None:
    """The highest priority comes to the lowest level."""
    level_of = LeveledQueue._level

    def other_level(self: LeveledQueue, levels: PriorityLevels, priority: int) -> PagedQueue:
        return level_of(self, levels, max(0, levels.highest - priority))

    patch.setattr(LeveledQueue, "_level", other_level)


def let_letters_go(patch: pytest.MonkeyPatch) -> None:
    """A dead letter leaves its queue before its target has it."""
    publish_letter = DeadLetters._publish

    def let_go(self: DeadLetters, letter: dead_letters._DeadLetter, now_ms: int) -> None:
        publish_letter(self, letter, now_ms)
        if letter.entry is not None and self.handovers.has(letter.entry):
            self.handovers.settle(letter.entry, letter.reason, now_ms)

    patch.setattr(DeadLetters, "_publish", let_go)


def promote_beside_a_complete_copy(patch: pytest.MonkeyPatch) -> None:
    """A mirror that lacks messages takes over while the node of a complete copy runs."""

    def nobody(group: Group, candidate: Member) -> frozenset[bytes]:
        return frozenset()

    patch.setattr("warrenmq.cluster.mirrors.replica.candidacy.fenced_nodes", nobody)


def wait_for_late_mirrors(patch: pytest.MonkeyPatch) -> None:
    """A master gives a silent mirror thirty seconds."""
    patch.setattr("warrenmq.cluster.mirrors.replica.in_sync.SILENT_MS", 30_000)
    patch.setattr("warrenmq.cluster.mirrors.replica.in_sync.BEHIND_MS", 30_000)
    patch.setattr("warrenmq.cluster.mirrors.replica.master_role.SILENT_MS", 30_000)


def hand_out_without_a_gate(patch: pytest.MonkeyPatch) -> None:
    """A master hands out messages whether or not its mirrors hear it."""

    def no_gate(
        self: Gates, nodes: frozenset[bytes], needs_lease: bool, now_ms: int
    ) -> HandOutGate:
        return OPEN

    patch.setattr(Gates, "gate", no_gate)


def count_what_lacks_acks(patch: pytest.MonkeyPatch) -> None:
    """A mirror counts as in sync until a confirm waits for it, whatever acks it lacks."""

    def waiting_since_ms(self: InSync, node: bytes) -> int:
        mark = self.mark_of(node)
        sealed = (each.sealed_ms for each in self._waiting if each.number > mark)
        return next(sealed, -1) if node in self.members else -1

    patch.setattr(InSync, "lacking_since_ms", waiting_since_ms)


def depose_after_an_absence(patch: pytest.MonkeyPatch) -> None:
    """A node that was away itself joins a master that does not hear it, and deposes that."""

    def may_depose(host: ReplicaHost, master: bytes) -> bool:
        return host.is_dead(master) or host.silence_ms(master) >= MASTER_SILENT_MS

    patch.setattr("warrenmq.cluster.mirrors.replica.candidacy._may_depose", may_depose)
    patch.setattr(Replica, "_may_rejoin", lambda self, group: True)


@dataclass(frozen=True)
class Planted:
    """A bug: how to plant it, the kind of violation that means it, and the history."""

    plant: Callable[[pytest.MonkeyPatch], None]
    kind: str
    history: ClusterHistory


def keep_no_receipts(patch: pytest.MonkeyPatch) -> None:
    """Queues do not know which messages of a sink they have got."""
    patch.setattr(ReceiptBook, "has", lambda self, position: False)


def count_positions_anew(patch: pytest.MonkeyPatch) -> None:
    """The positions of each batch of a sink begin with the first one."""

    def commit(
        vhost: bytes, name: bytes, before: PutSink | None, *rest: Any, **others: Any
    ) -> PutSink:
        row = sink_row.committed(vhost, name, before, *rest, **others)
        row.before_first = 0
        return row

    patch.setattr(rows, "committed", commit)


PLANTED: dict[str, Planted] = {
    # The answer of the queue's node is lost.
    "a message of a sink that comes again": Planted(
        keep_no_receipts,
        "doubled",
        history(
            3,
            "",
            [
                step("cut", 1, 0, "one way"),
                step("stage", 0, 40),
                step("long_wait", 200),
                step("long_wait", 9000),
            ],
        ),
    ),
    # The client of the sink takes one answer in each step.
    "a batch of a sink that counts as the last one": Planted(
        count_positions_anew,
        "lost",
        history(
            3,
            policy("", 2),
            [
                step("stage", 0, 9),
                *(Step("wait", (100,), seed) for seed in range(12)),
                step("stage", 0, 9),
                *(Step("wait", (100,), seed) for seed in range(12)),
            ],
        ),
    ),
    "a mirror that has heard less": Planted(
        count_less_as_as_much,
        "copies",
        history(4, policy("", 3), [step("cut", 1, 3, "one way"), step("strike", 3, 0, 1, "kill")]),
    ),
    # The queue moves to the fourth node, whose messages reach the first one, then the oldest.
    "a divergent tail that a new epoch keeps": Planted(
        keep_the_tail_in_the_ring,
        "copies",
        history(
            4,
            policy("", 4),
            [
                step("declare", 0, 3),
                step("long_wait", 600),
                step("rebalance", 0),
                step("long_wait", 1500),
                step("slow", 0, 2, 200, 0),
                step("strike", 2, 0, 2, "kill"),
            ],
        ),
    ),
    # The old master has what its mirrors were not sent.
    "a divergent tail that a synchronisation keeps": Planted(
        keep_the_tail_in_a_sync,
        "copies",
        history(
            4,
            policy("", 3),
            [
                step("policy", "ha", policy("", 4)),
                step("cut", 1, 2, "other way"),
                step("strike", 0, 0, 2, "kill"),
            ],
        ),
    ),
    "a mirror that forgets when messages expire": Planted(
        forget_expiry,
        "timers",
        history(3, policy("", 2), [publish(0, 0)], (QueueRules(ttl_ms=900_000),)),
    ),
    "messages that expire early": Planted(
        expire_early,
        "lost",
        history(
            3,
            policy("", 2),
            [publish(0, 0), step("long_wait", 1500)],
            (QueueRules(ttl_ms=900_000),),
        ),
    ),
    "a limit that drops too much": Planted(
        drop_one_more,
        "lost",
        history(3, policy("", 2), [publish(0, 0)], (QueueRules(max_length=3),)),
    ),
    "a queue that serves its lowest priority first": Planted(
        turn_levels_round,
        "priority",
        history(3, policy("", 2), [publish(0, 0, 6)], (QueueRules(max_priority=3),)),
    ),
    # The masters of both queues die before the second one's dead letter has come to the first one.
    "a dead letter that leaves too early": Planted(
        let_letters_go,
        "lost letter",
        history(
            4,
            policy("", 2),
            [
                publish(1, 1, 1),
                step("move", 0, 1),
                step("consume", 0, 1, 0, 0, 0),
                step("wait", 50),
                step("cut", 0, 1, "silent"),
                step("reject", 0, 0, 0),
                step("wait", 50),
                step("crash", 1, "kill", 0),
                step("crash", 0, "kill", 0),
            ],
            (QueueRules(), QueueRules(dead_letters=0)),
        ),
    ),
    # The mirrors lack what the queue had before they came, and know what the group has reserved.
    "a loss that a group is not told of": Planted(
        hide_losses,
        "silent loss",
        history(
            3,
            "",
            [
                publish(0, 0),
                step("wait", 50),
                step("policy", "ha", policy("", 3, "manual", ha_promote_on_failure="always")),
                step("long_wait", 1500),
                *[step("read", 0, 2)] * 8,
                step("long_wait", 600),
                step("crash", 0, "kill", 0),
                step("long_wait", 9000),
                step("long_wait", 9000),
                *[step("read", 0, 2)] * 8,
            ],
        ),
    ),
    "an unsafe promotion beside a complete copy": Planted(
        promote_beside_a_complete_copy,
        "unsynced",
        history(
            3,
            "",
            [
                publish(0, 0),
                step("wait", 50),
                step("policy", "ha", policy("", 3, "manual", ha_promote_on_failure="always")),
                step("long_wait", 1500),
                step("cut", 0, 1, "silent"),
                step("cut", 0, 2, "silent"),
                step("long_wait", 9000),
            ],
        ),
    ),
    "a master that hands out without a gate": Planted(
        hand_out_without_a_gate,
        "two masters",
        replace(history(3, policy("", 3), []), parting=HEAL_LINKS_FIRST),
    ),
    "a mirror in sync that lacks acks": Planted(
        count_what_lacks_acks,
        "flip-flop",
        replace(history(3, policy("", 3), []), parting=DEAD_MIRRORS),
    ),
    "a candidate that was away itself": Planted(
        depose_after_an_absence,
        "flip-flop",
        replace(history(3, policy("", 3), [Step("wait", (100,), 1)]), parting=QUIET_RETURN),
    ),
    "a master that waits for a mirror for long": Planted(
        wait_for_late_mirrors,
        "gap",
        replace(history(3, policy("", 2), []), outage=FREEZE_MIRROR),
    ),
}
