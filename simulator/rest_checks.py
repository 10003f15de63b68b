"""Checks of a node at rest and of what it leaves: consumers, counts, answers, files, messages."""

from __future__ import annotations

from pathlib import Path

from simulator.models.messages import (
    HELD,
    OUT,
    READY,
    RESERVING,
    UNSURE,
    QueueModel,
    Violation,
)
from simulator.models.oracle import Oracle
from simulator.sessions.clients import Sessions
from simulator.simulated.node import VHOST, Limits, SimulatedDisk, SimulatedNode
from warrenmq.broker.definitions.metadata import PutVhost
from warrenmq.offline.check import check_store
from warrenmq.offline.data_directory import VhostDirectory
from warrenmq.offline.problems import DAMAGED, NO_DEFINITION, CheckResult
from warrenmq.store.disk.files import JOURNAL_DIRECTORY


def check_consumers(sessions: Sessions, now_ms: int) -> None:
    """Violation if a consumer with room waits for a message that is ready."""
    for channel in sessions.channels.values():
        for consumer in channel.consumers.values():
            has_room = (
                consumer.prefetch == 0 or consumer.no_ack or consumer.unacked < consumer.prefetch
            )
            first = consumer.queue.first_ready(now_ms)
            if has_room and first is not None:
                raise Violation(
                    "starved",
                    f"a consumer of queue {consumer.queue.name} waits for message {first.content.number}, which is ready",
                )


def check_counts(node: SimulatedNode, queue: QueueModel) -> None:
    """Violation unless the queue counts its ready and its unacked messages correctly."""
    now_ms = node.now_ms
    engine = node.vhost.queues.get(queue.name.encode())
    if engine is None or engine.id != queue.id or queue.count(RESERVING):
        return
    queue.first_ready(now_ms)
    least = sum(
        copy.state == READY and not copy.is_expired(now_ms) for copy in queue.copies.values()
    )
    most = queue.count(READY) + queue.count(UNSURE)
    if not least <= engine.ready_count <= most:
        raise Violation(
            "count",
            f"queue {queue.name} counts {engine.ready_count} ready messages, there are {least} to {most}",
        )
    out = queue.count(OUT) + queue.count(HELD)
    if not out <= engine.unacked_count <= out + queue.count(UNSURE):
        raise Violation(
            "count",
            f"queue {queue.name} counts {engine.unacked_count} unacked messages, there are {out}",
        )


def check_offline(disk: SimulatedDisk, limits: Limits) -> None:
    """Violation if `warren store check` finds a problem on the disk of a node that went down."""
    definitions = disk.metadata.load()
    result = CheckResult()
    vhost = VhostDirectory(1, Path(), PutVhost(VHOST, 1))
    check_store(disk.files, limits.segment_entries, definitions, vhost, result)
    # A crash may keep the end of the batch being written and lose its beginning, which looks like
    # damage of the journal. A queue may have its first segment before its definition is on disk.
    lines = [
        f"{problem.kind}: {problem.text}"
        for problem in result.problems
        if problem.kind != NO_DEFINITION
        and (problem.kind != DAMAGED or not problem.text.startswith(JOURNAL_DIRECTORY))
    ]
    if lines:
        raise Violation("check", "; ".join(lines))


def check_drained(oracle: Oracle, drained: dict[int, list[int]], now_ms: int) -> None:
    """Violation unless each queue gave, in order, all messages that it must have.

    `drained`: numbers of the given messages by queue id.
    """
    for queue in oracle.queues.values():
        expected = sorted(queue.copies.values(), key=lambda copy: copy.order)
        numbers = [
            copy.content.number
            for copy in expected
            if copy.state != UNSURE
            and not copy.is_expired(now_ms)
            and copy.content.number not in queue.may_vanish
        ]
        if [number for number in drained[queue.id] if number in numbers] != numbers:
            raise Violation(
                "lost", f"queue {queue.name} gave {drained[queue.id]} at the end, not {numbers}"
            )


def has_unread(sessions: Sessions) -> bool:
    """True while the node does not read some connection."""
    return any(not channel.client.engine.is_reading for channel in sessions.channels.values())


def check_answers(sessions: Sessions) -> None:
    """Violation if a client waits for an answer or a confirm, or is not read, at the end."""
    if sessions.is_waiting():
        raise Violation("answer", "a reader group or a client of a sink waits for an answer")
    for channel in sessions.channels.values():
        if channel.expected:
            raise Violation(
                "answer", f"channel {channel.number} waits for {channel.expected[0][0].__name__}"
            )
        if channel.unconfirmed:
            raise Violation(
                "confirm", f"publishes {sorted(channel.unconfirmed)} were never confirmed"
            )
    if has_unread(sessions):
        raise Violation("flow", "a connection is not read any more")
