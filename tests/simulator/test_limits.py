"""Histories reach every limit that real nodes reach with megabytes."""

import pytest

from simulator.histories import SCALED_LIMITS, make_history
from simulator.simulated.node import Limits
from simulator.simulated.node_parts import NodeParts
from simulator.simulation import Simulation
from warrenmq.broker.broker import Broker
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.backing.loading import RangeLoad
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileSystem

# Histories within which each limit must be reached; histories without a missing limit scaled down
# are skipped.
SEEDS = 300


class LimitWatch(NodeParts):
    """Adds the name of a limit to `reached` in a turn in which the limit takes effect."""

    def __init__(self, limits: Limits, reached: set[str]) -> None:
        self._limits = limits
        self._reached = reached
        self._stops = 0
        # Connections that were blocked at the end of the last turn without an alarm.
        self._unreleased: set[Connection] = set()

    def change_vhost(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._stops = 0

    def flusher(self, files: FileSystem, reserve: SpaceReserve) -> BatchFlusher:
        flusher = _WatchedFlusher(files, reserve)
        flusher.watch = self
        return flusher

    def flushed(self, job: FlushJob) -> None:
        """Take a written batch; one without waiters was sealed for its size."""
        batch = job.batch
        if not batch.runs and not batch.callbacks and batch.part_bytes >= self._limits.buffer_bytes:
            self._reached.add("buffer_bytes")

    def end_turn(self, broker: Broker) -> None:
        limits, store, flow = self._limits, self._vhost.store, broker.disk_flow
        found = {
            "group_bytes": store.jobs.lane.waiting_bytes > limits.group_bytes,
            "behind_bytes": store.files.is_behind,
            "dead_bytes": store.checkpoints.has_dead_files()
            and store.contents.persistent.dead_bytes >= limits.dead_bytes,
            "stop_bytes": flow.stop_count > self._stops
            and flow.waiting_bytes(self._vhost.journal) > limits.stop_bytes,
            "store_stop_bytes": flow.stop_count > self._stops
            and flow.waiting_bytes(self._vhost.journal) <= limits.stop_bytes,
            "kept_bytes_max": broker.alarms.is_crowded(),
        }
        self._stops = flow.stop_count
        room = broker.memory_account.ahead_room()
        for queue in self._vhost.queues.values():
            delta = queue.backing.ready.delta
            found["load_bytes"] = found.get("load_bytes", False) or (
                isinstance(queue.backing.loader.current, RangeLoad)
                and delta.content_bytes > limits.load_bytes
            )
            is_ahead = (
                len(queue.consumers) > 0
                and delta.count > 1
                and queue.backing.loader.current is not None
            )
            found["ahead_bytes"] = found.get("ahead_bytes", False) or (
                is_ahead and delta.content_bytes > limits.ahead_bytes
            )
            found["ahead_bytes_max"] = found.get("ahead_bytes_max", False) or (
                is_ahead
                and room == limits.ahead_bytes_max
                and queue.backing.ready.alpha_bytes * 2 >= room
            )
            found["deep_bytes_max"] = found.get("deep_bytes_max", False) or (
                queue.backing.memory.is_deep and delta.count > 0
            )
        blocked = (
            set()
            if broker.alarms.is_on
            else {it for it in broker.connections if it.throttle.is_blocked}
        )
        found["release_bytes"] = bool(blocked & self._unreleased)
        self._unreleased = blocked
        self._reached.update(name for name, is_reached in found.items() if is_reached)


class _WatchedFlusher(BatchFlusher):
    watch: LimitWatch

    def flush(self, job: FlushJob) -> None:
        self.watch.flushed(job)
        super().flush(job)


def test_every_limit_is_reached() -> None:
    missing = set(SCALED_LIMITS)
    for seed in range(1, SEEDS + 1):
        history = make_history(seed)
        limits = history.limits
        if all(getattr(limits, name) == getattr(Limits(), name) for name in missing):
            continue
        reached: set[str] = set()
        assert Simulation(history, node_parts=LimitWatch(limits, reached)).run() is None
        missing -= reached
        if not missing:
            return
    pytest.fail(f"{SEEDS} histories never reach {sorted(missing)}")
