"""Builds the admin replies with figures of node, stores and queues; opens no file, never waits."""

import warrenmq
from warrenmq.admin.protocol.figures import (
    ContentStatus,
    FormStatus,
    IndexStatus,
    JournalStatus,
    LogStatus,
    NodeStatus,
    PartStatus,
    QueueGroupStatus,
    QueueStatus,
    RateStatus,
    VhostStatus,
    WriteStatus,
)
from warrenmq.admin.protocol.requests import GroupStatus, MemberStatus
from warrenmq.admin.protocol.sinks import SinkStatus
from warrenmq.broker.broker import Broker
from warrenmq.broker.flow.alarm_state import OFF
from warrenmq.broker.vhost.handovers.dead_letters import REASON_TEXTS
from warrenmq.broker.vhost.sinks.staging import Staging
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.build import build_name
from warrenmq.queues.queue import Queue
from warrenmq.queues.queue_figures import FormFigures, QueueFigures
from warrenmq.queues.readers.group import GroupMember
from warrenmq.queues.readers.groups import ReaderGroup, ReaderGroups
from warrenmq.store.figures import ContentFigures, StoreFigures
from warrenmq.store.upkeep.write_figures import WriteFigures, amplification, write_figures_of
from warrenmq.vocabulary.names import name_text


def node_status(
    broker: Broker, name: str, vhosts: list[VhostStatus], now_ms: int | None
) -> NodeStatus:
    """Status of the node called `name`, with the given time and status of its vhosts."""
    alarms = broker.alarms
    on = [("memory", alarms.memory_since_ms), ("disk", alarms.disk_since_ms)]
    return NodeStatus(
        node=name,
        version=warrenmq.__version__,
        build=build_name(),
        connections=len(broker.connections),
        alarms=[kind for kind, since_ms in on if since_ms != OFF],
        memory_used_bytes=_measured(alarms.memory_used_bytes),
        memory_limit_bytes=alarms.memory_limit_bytes,
        message_bytes=broker.memory_account.ram_bytes,
        unfinished_bytes=broker.memory_account.unfinished_bytes,
        disk_free_bytes=_measured(alarms.disk_free_bytes),
        disk_limit_bytes=alarms.disk_limit_bytes,
        flow_stops=broker.disk_flow.stop_count,
        vhosts=vhosts,
        blocked=sum([connection.throttle.is_blocked for connection in broker.connections]),
        paging_limit_bytes=broker.paging_limit_bytes,
        now_ms=now_ms,
    )


def vhost_status(vhost: Vhost, groups: ReaderGroups) -> VhostStatus:
    """Figures of a vhost's store, and the lag of its reader groups."""
    figures = StoreFigures(vhost.store)
    logs = figures.logs
    return VhostStatus(
        vhost=vhost.name.decode("utf-8", "replace"),
        queues=len(vhost.queues),
        disk_bytes=figures.disk_bytes,
        live_bytes=figures.live_bytes,
        debt_bytes=figures.debt_bytes,
        deletable_bytes=figures.deletable_bytes,
        waiting_bytes=figures.waiting_bytes,
        is_behind=figures.is_behind,
        journal=JournalStatus(
            figures.journal_bytes, figures.journal_live_bytes, figures.journal_files
        ),
        logs=LogStatus(logs.total_bytes, logs.live_bytes, logs.files),
        index=IndexStatus(
            figures.index_bytes, figures.index_live_bytes, figures.segments, figures.live_positions
        ),
        persistent=_content_status(figures.persistent),
        transient=_content_status(figures.transient),
        writes=_write_status(write_figures_of(vhost.store.journal, vhost.store.files)),
        checkpoints=figures.checkpoints,
        failed_checkpoints=figures.failed_checkpoints,
        generation=figures.generation,
        damaged=figures.damaged,
        lost=figures.lost,
        delayed=vhost.delayed.waiting_count(),
        dead_letters={
            REASON_TEXTS[reason].decode(): count
            for reason, count in sorted(vhost.dead_letters.counts.items())
        },
        groups=len(groups.shown()),
        group_held=sum([group.reserved_count() for group in groups.by_name.values()]),
        group_lag=sum([group.lag() for group in groups.by_name.values()]),
    )


def queue_status(queue: Queue, readers: list[GroupMember]) -> QueueStatus:
    """Figures of a queue, and what each of `readers` has reserved and not acked of it."""
    figures = QueueFigures(queue)
    name = name_text(figures.name)
    return QueueStatus(
        name=name,
        name_raw=None if name.encode() == figures.name else figures.name,
        id=figures.queue_id,
        mode="lazy" if figures.is_lazy else "default",
        durable=figures.durable,
        consumers=figures.consumers,
        ready=figures.ready,
        unacked=figures.unacked,
        parts=PartStatus(figures.q1, figures.q2, figures.delta_part, figures.q3, figures.q4),
        alpha=_form_status(figures.alpha),
        beta=_form_status(figures.beta),
        gamma=_form_status(figures.gamma),
        delta=_form_status(figures.delta),
        ram_count=figures.ram_count,
        ram_bytes=figures.ram_bytes,
        target_ram_count=figures.target_ram_count,
        rates=RateStatus(
            figures.in_rate, figures.out_rate, figures.ack_in_rate, figures.ack_out_rate
        ),
        published=figures.published,
        delivered=figures.delivered,
        settled=figures.settled,
        requeued=figures.requeued,
        expired=figures.expired,
        next_seq=figures.next_seq,
        indexed_upto=figures.indexed_upto,
        groups=[
            QueueGroupStatus(
                name_text(reader.group_name), len(reader.reserved_entries), reader.lag()
            )
            for reader in readers
        ],
        body_bytes=figures.body_bytes,
    )


def group_status(group: ReaderGroup, now_ms: int) -> GroupStatus:
    """Reserved messages and lag of a reader group and of each of its members."""
    members = [
        MemberStatus(
            queue=member.queue_name,
            incarnation=member.incarnation,
            acked=member.acked,
            reserved=member.reserved,
            held=len(member.reserved_entries),
            lag=member.lag(),
            lag_seconds=_lag_seconds(member, now_ms),
            is_lost=member.is_lost,
        )
        for member in group.ordered()
        if not member.is_ended
    ]
    return GroupStatus(
        group=name_text(group.name),
        pattern=group.pattern,
        epoch=group.epoch,
        opener=group.opener,
        held=sum([member.held for member in members]),
        lag=sum([member.lag for member in members]),
        lag_seconds=max([member.lag_seconds for member in members], default=0.0),
        members=members,
    )


def sink_names(staging: Staging) -> list[bytes]:
    """The sinks of a vhost that have committed a batch or have stages, sorted."""
    return sorted({*staging.sinks, *(stage.sink for stage in staging.stages.values())})


def sink_status(staging: Staging, name: bytes) -> SinkStatus:
    """The last batch of a sink, and the messages in its stages."""
    sink = staging.sinks.get(name)
    stages = [stage for stage in staging.stages.values() if stage.sink == name]
    committed = 0
    staged = 0
    for stage in stages:
        left = stage.queue.ready_count + stage.queue.unacked_count
        if stage.is_committed:
            committed += left
        else:
            staged += left
    return SinkStatus(
        name_text(name),
        None if sink is None or sink.batch < 0 else sink.batch,
        sink is not None and sink.is_busy(),
        committed,
        len([stage for stage in stages if not stage.is_committed]),
        staged,
        "" if sink is None else name_text(sink.mover),
        [] if sink is None else [name_text(node) for node in sink.nodes],
    )


def _lag_seconds(member: GroupMember, now_ms: int) -> float:
    since_ms = member.lag_since_ms() if member.lag() > 0 else -1
    return max(0, now_ms - since_ms) / 1000 if since_ms >= 0 else 0.0


def _content_status(figures: ContentFigures) -> ContentStatus:
    return ContentStatus(
        figures.total_bytes,
        figures.valid_bytes,
        figures.garbage_bytes,
        figures.files,
        figures.compactions,
        figures.is_compacting,
        figures.wanted_files,
        figures.wanted_garbage_bytes,
    )


def _write_status(figures: WriteFigures) -> WriteStatus:
    return WriteStatus(
        published_bytes=figures.published_bytes,
        journal_bytes=figures.journal_bytes,
        content_bytes=figures.content_bytes,
        index_bytes=figures.index_bytes,
        rewritten_bytes=figures.rewritten_bytes,
        compacted_bytes=figures.compacted_bytes,
        checkpoint_bytes=figures.checkpoint_bytes,
        amplification=amplification(figures.total_bytes, figures.published_bytes),
    )


def _form_status(figures: FormFigures) -> FormStatus:
    return FormStatus(figures.count, figures.size_bytes)


def _measured(size: int) -> int | None:
    return size if size >= 0 else None
