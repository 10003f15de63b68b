"""Runs one history: operations, crashes, restarts and checks, until the node is empty.

After every restart the disk is copied and a second node starts from the copy, sometimes twice. The
oracle judges the messages that the second node gives away when it is drained; the first node, which
recovered from the same bytes, must give away the same messages later. The second node must also end
with empty stores (T34). At the end of the history all faults are lifted, the node must come to
rest, and after one more restart the node itself is drained in the same way.
"""

from __future__ import annotations

from random import Random
from typing import Final

from simulator.many_histories import error_violation
from simulator.models.commit_token import CommitToken
from simulator.models.damage import acks_in, damage_of, is_whole
from simulator.models.messages import Violation
from simulator.models.mirror import MirrorModel, follow
from simulator.models.oracle import Oracle
from simulator.models.sinks import StagedMessages
from simulator.operations import FAULTY_CALLS, NO_TARGET, History, Operation
from simulator.rest_checks import (
    check_answers,
    check_consumers,
    check_counts,
    check_drained,
    check_offline,
    has_unread,
)
from simulator.sessions.clients import Sessions
from simulator.sessions.draining import check_rest, drain_queues
from simulator.sessions.move_watch import AuditWatch, OracleWatch
from simulator.sessions.reserved_messages import take_back
from simulator.sessions.sinks import clear_sinks
from simulator.sessions.topology import check_topology
from simulator.simulated.backup import SimulatedBackup
from simulator.simulated.crash_watch import CrashWatch
from simulator.simulated.file_system import KILL, POWER, Crash, Fault, SimulatedFileSystem
from simulator.simulated.metadata import SimulatedMetadata
from simulator.simulated.node import Commits, SimulatedDisk, SimulatedNode
from simulator.simulated.node_parts import NodeParts
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.disk.files import JOURNAL_DIRECTORY
from warrenmq.store.journal.journal import FLUSH_INTERVAL_MS
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME

START_MS: Final = 1_700_000_000_000
# Rounds of FLUSH_INTERVAL_MS that a node gets to come to rest: a reader group fetches one reserved
# range after another, and flow control waits for checkpoints, one a second.
FETCH_ROUNDS: Final = 200
# Endings of files whose damage a start must notice and survive.
CHECKED_FILES: Final = (".wal", ".idx", ".rdq", "checkpoint", "checkpoint.previous")
# Bytes of allocated space that are read behind the written ones: a record whose last bytes are
# zeros is whole although a power failure took them.
RECORD_ZEROS: Final = 4096
FAULTS: Final = frozenset(("fault", "start_fault", "disk_full"))
# Share of stops and crashes after which `warren store check` runs on the disk.
CHECKED_SHARE: Final = 0.15
# Time (ms) that one operation takes.
STEP_MS: Final = 1
CLIENT_OPERATIONS: Final = frozenset(
    (
        "declare", "declare_temporary", "delete", "purge", "exchange_declare", "exchange_delete", "bind", "unbind",
        "publish", "publish_large", "publish_to", "consume", "cancel", "get", "ack", "nack", "recover", "tx_commit",
        "tx_rollback", "close_channel", "drop_connection", "group_open", "group_reserve", "group_fetch", "group_ack",
        "group_late", "group_delete",         "sink_stage", "sink_finish", "sink_leave", "sink_commit", "sink_abort", "sink_delete",
    )
)  # fmt: skip


class Unwatched:
    """Ignores the group commits of a node that no client uses."""

    def seal(self) -> CommitToken:
        return CommitToken([], [], [], 0)

    def committed(self, token: CommitToken, has_definitions: bool) -> None:
        pass

    def commit_failed(self, token: CommitToken) -> None:
        pass


class Simulation:
    """Runs one history; `run` returns the violation that ends it, or None."""

    def __init__(
        self, history: History, story: list[str] | None = None, node_parts: NodeParts | None = None
    ) -> None:
        self.history = history
        self._parts = node_parts or NodeParts()
        self.oracle = Oracle()
        self.staged = StagedMessages(self.oracle)
        # The story of the history, line by line; None: no story is wanted.
        self.story = story
        self.now_ms = START_MS
        files = SimulatedFileSystem()
        files.log = story
        self.disk = SimulatedDisk(files, SimulatedMetadata(files))
        self.crash_count = 0
        # Number of backups that were finished and judged.
        self.backup_count = 0
        # The last backup, from its begin until it is judged.
        self._backup: SimulatedBackup | None = None
        # A call of the disk may fail, so the files that a failed call leaves behind are not judged.
        self._is_faulty = any(operation.kind in FAULTS for operation in history.operations)
        self._next_number = 1
        # Bits to flip when the node is down the next time.
        self._flips = 0
        # Every bit flipped so far: (path, offset in bytes, bit).
        self._flipped: set[tuple[str, int, int]] = set()
        # Faults of the disk during the next start.
        self._start_faults: list[Fault] = []
        # Damage that was reported by the last node before it went down, and by the starts since
        # then.
        self._damage_count = 0
        # Rule of the planned crash: KILL, POWER or ORDERED.
        self._planned_rule = POWER
        self._watch = CrashWatch()

    # -- the whole ---------------------------------------------------------------------------------

    def run(self) -> Violation | None:
        """Run the history; returns the first broken promise, or None at its end."""
        with self._watch:
            return self._run_history()

    def _run_history(self) -> Violation | None:
        try:
            self._start_node()
            for index, operation in enumerate(self.history.operations):
                self._tell(f"{index:4}  {operation}")
                self._run_guarded(operation)
            self._tell("      the end: faults are lifted")
            self._finish()
        except Violation as violation:
            return violation
        except Exception as error:  # An exception of the engine is a finding.
            return error_violation(error)
        return None

    def _tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append(text)

    def _run_guarded(self, operation: Operation) -> None:
        rng = Random(operation.seed)
        self.disk.files.rng = rng
        self._move_clock(STEP_MS)
        try:
            self._run(operation, rng)
            self.sessions.end_operation()
        except Crash:
            self._crash(rng, self._planned_rule, 0, 0)
        self.node.vhost.check()
        follow(self._mirrors, list(self.node.vhost.queues_by_id.values()))
        self._check_broker()

    def _check_broker(self) -> None:
        self._watch.check()

    def _run(self, operation: Operation, rng: Random) -> None:
        if operation.kind in CLIENT_OPERATIONS:
            if not self.sessions.run(operation):
                self._tell("        (nothing)")
            return
        match operation.kind:
            case "run":
                self._run_lane(operation.text(0), operation.number(1))
            case "overlap":
                self._overlap(operation)
            case "finish":
                for _ in range(operation.number(1)):
                    self.node.finish(operation.text(0))
            case "idle":
                self._idle()
            case "page":
                self._set_target(operation.number(0), operation.number(1))
            case "mode":
                self._set_mode(operation.number(0), bool(operation.number(1)))
            case "tick":
                self._move_clock(operation.number(0))
                self._tick()
            case "alarm":
                self.sessions.alarms.set(operation.number(0), bool(operation.number(1)))
            case "backup":
                self._begin_backup(rng)
            case "backup_copy":
                if self._backup is not None:
                    self._backup.copy()
            case "crash":
                self._crash(rng, operation.text(0), operation.number(1), operation.number(2))
            case "stop":
                self._stop(rng, operation.number(0))
            case _:
                self._prepare_fault(operation, rng)

    def _prepare_fault(self, operation: Operation, rng: Random) -> None:
        files = self.disk.files
        match operation.kind:
            case "crash_within":
                files.crash_after = operation.number(0)
                self._planned_rule = operation.text(1)
            case "fault":
                assert operation.text(0) in FAULTY_CALLS
                kinds = (operation.text(0),) if operation.text(0) else ()
                files.faults.append(
                    Fault(kinds, operation.number(1), operation.number(2), operation.number(3))
                )
            case "disk_full":
                files.capacity = files.used_bytes() + operation.number(0)
            case "disk_free":
                files.capacity = 0
            case "flip":
                self._flips += operation.number(0)
            case "flip_now":
                # Only a start reads the journal.
                self._flip_bits(operation.number(0), rng, (".idx", ".rdq"), True)

    def _move_clock(self, ms: int) -> None:
        self.now_ms += ms
        self.node.now_ms = self.now_ms

    def _tick(self) -> None:
        self.sessions.topology.expire_unused()
        self.node.tick()

    # -- backups -----------------------------------------------------------------------------------

    def _begin_backup(self, rng: Random) -> None:
        if self._backup is not None and self._backup.is_running:
            return
        self._judge_backup(rng)
        self._backup = SimulatedBackup(self.node, self.oracle, self.staged)
        self._backup.start()

    def _judge_backup(self, rng: Random) -> None:
        """Start a node from the last backup, if it is finished, and judge the node's messages."""
        backup, self._backup = self._backup, None
        # A flipped bit may be in the backup as well.
        if backup is None or self.oracle.is_damaged:
            return
        if not backup.is_finished:
            self._tell(f"        the backup was not finished: {backup.status_text()}")
            if not backup.is_running and not self._is_faulty and not backup.is_interrupted:
                raise Violation("backup", f"it failed without a fault: {backup.status_text()}")
            return
        self._tell("        a node is started from the backup")
        self.backup_count += 1
        twin = Simulation(self.history, self.story, self._parts)
        twin.oracle, twin.staged = backup.frozen()
        twin.disk, twin.now_ms = backup.disk(), backup.now_ms
        twin.oracle.topology.restart(twin.disk.metadata.load(), twin.oracle.queues, twin.now_ms)
        twin._check_offline(twin.disk.fork(), rng)
        twin.oracle.restart(twin.disk.metadata.queue_ids(), twin.now_ms)
        twin._audit(twin.disk, rng)

    # -- the disk gets on --------------------------------------------------------------------------

    def _run_lane(self, name: str, count: int) -> None:
        for _ in range(count):
            lane = self.node.lanes[name]
            if lane.waiting:
                self._tell(f"        {lane.waiting[0].text}")
            if not self.node.run(name):
                return

    def _set_target(self, index: int, target: int) -> None:
        """Set how many messages a queue may have in memory, as the memory monitor does."""
        queue = self.node.vhost.queues.get(b"q%d" % index)
        if queue is not None:
            queue.backing.memory.set_target(UNLIMITED if target == NO_TARGET else target)

    def _set_mode(self, index: int, is_lazy: bool) -> None:
        queue = self.node.vhost.queues.get(b"q%d" % index)
        if queue is not None:
            settings = queue.settings
            queue.apply(QueueSettings(settings.message_ttl_ms, settings.expires_ms, is_lazy))

    def _overlap(self, operation: Operation) -> None:
        """Run a job of one lane, and jobs of another lane in the middle of it."""
        files = self.disk.files
        other, count = operation.text(2), operation.number(3)
        if other == operation.text(0):
            return
        files.interrupt = lambda: self._run_lane(other, count)
        files.interrupt_after = operation.number(1)
        self._run_lane(operation.text(0), 1)
        files.interrupt_after = -1

    def _idle(self) -> None:
        """Let the node come to rest, then check that nothing is missing that must be there."""
        self.node.drain()
        for _ in range(FETCH_ROUNDS):
            is_stopped = self.node.broker.disk_flow.is_full(self.node.vhost.journal)
            if self._is_failing() or not (is_stopped or self.node.has_more):
                break
            # Flow control stops sinks until a tick of the journal has written the waiting bytes.
            self._move_clock(FLUSH_INTERVAL_MS)
            self.node.drain()
        self.sessions.end_operation()
        check_topology(self.node, self.oracle)
        self.sessions.alarms.check_rest()
        if self._is_disturbed():
            return
        # A node at rest has every requested change on disk.
        self.oracle.topology.stored.committed(self.oracle.topology.stored.version)
        if not self.sessions.alarms.is_on:
            for sink in self.staged.sinks.values():
                self.staged.check_all_published(sink)
        check_consumers(self.sessions, self.now_ms)
        if not self.oracle.is_damaged:
            # A queue counts a damaged message until someone reads it.
            for queue in self.oracle.queues.values():
                check_counts(self.node, queue)

    def _is_disturbed(self) -> bool:
        return self._is_failing() or self.node.has_more

    def _is_failing(self) -> bool:
        files = self.disk.files
        is_faulty = bool(files.capacity) or any(fault.times for fault in files.faults)
        # A node that had a failure waits before it tries again.
        return is_faulty or self.node.is_pausing()

    # -- down and up -------------------------------------------------------------------------------

    def _crash(self, rng: Random, rule: str, recovery_crashes: int, jump_ms: int) -> None:
        self.crash_count += 1
        self._tell(f"        crash ({rule})")
        self.disk.crash(rng, rule)
        self._restart(rng, rule, recovery_crashes, jump_ms)

    def _stop(self, rng: Random, jump_ms: int) -> None:
        if self._backup is not None:
            self._backup.interrupt()
        self.sessions.close_all()
        is_clean = self.node.stop()
        self._tell(f"        stopped, {'clean' if is_clean else 'with something left to write'}")
        if is_clean and self.disk.files.open_handles:
            raise Violation(
                "handles", f"{self.disk.files.open_handles} files are open after a stop"
            )
        self.disk.crash(rng, POWER if rng.random() < 0.5 else KILL)
        self._restart(rng, POWER, 0, jump_ms)

    def _restart(self, rng: Random, rule: str, recovery_crashes: int, jump_ms: int) -> None:
        self._next_number = self.sessions.publishes.next_number
        files = self.disk.files
        if self._backup is not None:
            self._backup.interrupt()
            self._judge_backup(rng)
        files.capacity = 0
        self._flip_bits(self._flips, rng, CHECKED_FILES, False)
        self._flips = 0
        # The node that is down now has reported the damage by bits that were flipped while it ran.
        self._damage_count = self.node.damage_count
        stopped_ms = self.now_ms
        self.now_ms += jump_ms
        self.oracle.topology.restart(self.disk.metadata.load(), self.oracle.queues, self.now_ms)
        for _ in range(recovery_crashes):
            files.crash_after = rng.randrange(12)
            node = self._new_node(self.disk, Unwatched())
            node.watch = OracleWatch(self.staged, False)
            try:
                node.start()
            except Crash:
                self._tell("        crash in recovery")
            self.disk.crash(rng, rule)
            self._damage_count += node.damage_count
        self._start_with_faults(rng)
        self._check_offline(self.disk.fork(), rng)
        audited = self.disk.fork()
        self.oracle.restart(self.disk.metadata.queue_ids(), stopped_ms)
        self._audit(audited, rng)
        self._start_node()

    def _start_with_faults(self, rng: Random) -> None:
        """Start a node while calls of the disk fail; the start after it has no faults."""
        faults, self._start_faults = self._start_faults, []
        if not faults:
            return
        files = self.disk.files
        files.faults = faults
        node = self._new_node(self.disk, Unwatched())
        node.watch = OracleWatch(self.staged, False)
        try:
            node.start()
        except OSError as error:
            self._tell(f"        the start fails: {error}")
        self.disk.crash(rng, KILL)
        self._damage_count += node.damage_count

    def _check_offline(self, disk: SimulatedDisk, rng: Random) -> None:
        """Run `warren store check` on the disk of a node that went down, in CHECKED_SHARE cases."""
        if self.oracle.is_damaged or self._is_faulty or rng.random() >= CHECKED_SHARE:
            return
        check_offline(disk, self.history.limits)

    def _flip_bits(
        self, count: int, rng: Random, endings: tuple[str, ...], is_running: bool
    ) -> None:
        files = self.disk.files
        for _ in range(count):
            found = [
                (path, file)
                for path, file in files.files()
                if file.data and is_checked(path, endings)
            ]
            if not found:
                break
            path, file = rng.choice(found)
            offset, bit = rng.randrange(len(file.data)), rng.randrange(8)
            if (path, offset, bit) in self._flipped:
                # A second flip of a bit would repair the damage and bring back messages counted as
                # lost.
                continue
            self._flipped.add((path, offset, bit))
            self._tell(f"        bit {bit} of byte {offset} of {path} is flipped")
            damage = damage_of(path, file.content(RECORD_ZEROS), offset)
            self.oracle.allow(damage, is_running)
            files.flip(path, offset, bit)
        if not is_running and count:
            self._allow_returns()

    def _allow_returns(self) -> None:
        """If no whole checkpoint is left, allow settled messages without an ack to return."""
        acks: list[tuple[int, int, int]] = []
        for path, file in self.disk.files.files():
            if path in ("/" + CHECKPOINT_NAME, "/" + PREVIOUS_NAME) and is_whole(bytes(file.data)):
                return
            if path.startswith(f"/{JOURNAL_DIRECTORY}/"):
                acks.extend(acks_in(path, file.content(RECORD_ZEROS)))
        self.oracle.allow_returns(acks)

    def _new_node(self, disk: SimulatedDisk, commits: Commits) -> SimulatedNode:
        return SimulatedNode(disk, self.history.limits, commits, self.now_ms, self._parts)

    def _start_node(self) -> None:
        self.node = self._new_node(self.disk, self.oracle)
        self._mirrors: dict[int, MirrorModel] = {}
        self.node.watch = OracleWatch(self.staged, True)
        self.node.start()
        self.sessions = Sessions(self.node, self.oracle, self.staged, self._next_number)
        self.node.before_output = self.sessions.before_output
        check_topology(self.node, self.oracle)

    # -- what is there -----------------------------------------------------------------------------

    def _audit(self, disk: SimulatedDisk, rng: Random) -> None:
        """Start a second node from `disk`, drain it, and let the oracle judge its messages."""
        watch = AuditWatch(self.staged)
        node = self._new_node(disk, Unwatched())
        node.watch = watch
        node.start()
        if rng.random() < 0.3:
            self._damage_count += node.damage_count
            disk.crash(rng, POWER)
            self._check_offline(disk.fork(), rng)
            node = self._new_node(disk, Unwatched())
            node.watch = watch
            node.start()
        reserved = take_back(node, self.oracle)
        found = drain_queues(node, self.oracle)
        self._tell_sinks(node, watch)
        for queue in self.oracle.queues.values():
            numbers = found.get(queue.id)
            if numbers is None:
                raise Violation("queue", f"queue {queue.name} is not there after a restart")
            with_groups = reserved.get(queue.id, {})
            self._tell(f"        found in {queue.name}: {numbers}, held of them: {with_groups}")
            self.oracle.found(
                queue, watch.without_published(queue, numbers), with_groups, node.now_ms
            )
        self._damage_count += node.damage_count
        if self.oracle.lost_count and not self._damage_count:
            raise Violation(
                "silent", "messages were lost to damage, and the report of the start counts none"
            )
        self.oracle.lost_count = 0
        if not self.oracle.is_damaged:
            check_rest(node)

    def _tell_sinks(self, node: SimulatedNode, watch: AuditWatch) -> None:
        staging = node.vhost.staging
        batches = {sink.name.decode(): int(sink.batch) for sink in staging.sinks.values()}
        logs = {
            stage_id: int(stage.queue.ready_count)
            for stage_id, stage in staging.stages.items()
            if not stage.is_committed
        }
        self._tell(
            f"        sinks are at {batches}, staged are {logs}, published again {sorted(watch.numbers)}"
        )
        self.staged.restarted(batches, logs, watch.numbers)
        clear_sinks(node)

    def _lift_faults(self) -> None:
        """End all faults and alarms, and let the disk do the jobs that are due."""
        files = self.disk.files
        files.faults.clear()
        files.capacity = 0
        files.crash_after = -1
        self.sessions.alarms.end_all()
        if self._backup is not None:
            self._backup.copy()
        # Twice, since a failed commit is retried after a pause.
        for _ in range(2):
            self.node.drain()
            self._move_clock(10_000)
            self._tick()

    def _finish(self) -> None:
        self._lift_faults()
        for _ in range(FETCH_ROUNDS):
            if self.sessions.is_waiting():
                # The node polls, by a timer, whether a client that stages messages may continue.
                self._move_clock(FLUSH_INTERVAL_MS)
                self.node.drain()
                self.sessions.end_operation()
        self._idle()
        # A queue may page one message a tick; a full disk has left such messages in memory.
        for _ in range(FETCH_ROUNDS):
            if has_unread(self.sessions):
                self._move_clock(FLUSH_INTERVAL_MS)
                self.node.drain()
        check_answers(self.sessions)
        rng = Random(self.history.seed)
        if self._backup is not None and self._backup.is_running:
            raise Violation("backup", f"it never ends: {self._backup.status_text()}")
        if rng.random() < 0.5:
            self._stop(rng, 0)
        else:
            self._crash(rng, POWER, 0, 0)
        take_back(self.node, self.oracle)
        drained = drain_queues(self.node, self.oracle)
        clear_sinks(self.node)
        check_drained(self.oracle, drained, self.node.now_ms)
        if not self.oracle.is_damaged:
            check_rest(self.node)
        self._check_broker()


def is_checked(path: str, endings: tuple[str, ...]) -> bool:
    """Whether damage to this file must be noticed and survived; false for files in lost+found."""
    return "/lost+found/" not in path and path.endswith(endings)
