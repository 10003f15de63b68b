"""Runs one history of messages that leave queues by rule; `run_leaving_seeds` runs many.

After each crash a second node starts from a copy of the disk and is drained, and the oracle judges
what it gives away. At the end the node itself is drained in the same way.
"""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Final

from simulator.leaving.clients import ConsumingClients, Publisher, drain
from simulator.leaving.histories import (
    FANOUT,
    NOWHERE,
    QUEUES,
    REST_MS,
    SAME_KEY,
    LeavingHistory,
    QueueRules,
    Step,
    make_leaving_history,
)
from simulator.leaving.oracle import LeavingOracle
from simulator.many_histories import Outcome, error_violation, run_each, shortened
from simulator.models.commit_token import CommitToken
from simulator.models.messages import Violation
from simulator.models.mirror import MirrorModel, follow
from simulator.sessions.draining import check_rest
from simulator.simulated.crash_watch import CrashWatch
from simulator.simulated.file_system import (
    KILL,
    POWER,
    Crash,
    Fault,
    SimulatedFileSystem,
)
from simulator.simulated.metadata import SimulatedMetadata
from simulator.simulated.node import VHOST, SimulatedDisk, SimulatedNode
from simulator.simulated.node_parts import NodeParts
from warrenmq.broker.definitions.metadata import DeleteParameter, PutParameter
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import DROP_HEAD, LengthLimit

START_MS: Final = 1_700_000_000_000
CLIENT_STEPS: Final = frozenset(("consume", "cancel", "get", "ack", "reject", "drop"))
# Longer than every delay (ms).
DELAY_MS_MAX: Final = 300_000
# Ticks of a node whose delayed messages are all due; some nodes load one message in a tick.
LATE_TICKS_MAX: Final = 1000
RUNS_MAX: Final = 2000
# Dead letters of one run of a node; a history that does not circle has far fewer.
LETTERS_MAX: Final = 5000
# Longer than the pause after a failed commit (ms).
RETRY_MS: Final = 10_000


class EndlessCircle(Exception):
    """Dead letters go round without end, as they do in RabbitMQ once a client has rejected one.

    Both brokers take the reject for a later one than it is, as x-death does not keep the order of
    deaths.
    """


class _Unwatched:
    def seal(self) -> CommitToken:
        return CommitToken([], [], [], 0)

    def committed(self, token: CommitToken, has_definitions: bool) -> None:
        pass

    def commit_failed(self, token: CommitToken) -> None:
        pass


class LeavingSimulation:
    """Runs one history; `run` returns the violation that ends it, or None."""

    def __init__(
        self,
        history: LeavingHistory,
        story: list[str] | None = None,
        node_parts: NodeParts | None = None,
    ) -> None:
        self.history = history
        self.story = story
        self.crash_count = 0
        self.oracle = LeavingOracle(history.rules)
        self._parts = node_parts or NodeParts()
        self._now_ms = START_MS
        files = SimulatedFileSystem()
        files.log = story
        files.rng = Random(history.seed)
        self.disk = SimulatedDisk(files, SimulatedMetadata(files))
        self._rule = POWER
        self._next_number = 1
        # Failed calls of the disk: before the node's start, and when they were last looked at.
        self._failed_before_start = 0
        self._failed_calls = 0
        # Failed work may wait for its retry until this time (ms).
        self._retried_ms = 0
        self._watch = CrashWatch()
        # The mirrors of the running node's queues, by queue id.
        self._mirrors: dict[int, MirrorModel] = {}

    def run(self) -> Violation | None:
        """Run the history; returns the first broken promise, or None at its end."""
        with self._watch:
            return self._run_history()

    def _run_history(self) -> Violation | None:
        try:
            self._start()
            self.publisher.declare(self.history.rules)
            self.node.drain()
            for index, step in enumerate(self.history.steps):
                self._tell(f"{index:4}  {step}")
                self._run_guarded(step)
            self._tell("      the end")
            self._finish()
            self._watch.check()
        except Violation as violation:
            return violation
        except EndlessCircle:
            if not any(record.was_rejected for record in self.oracle.records.values()):
                return Violation("endless", "dead letters circle, and nobody has rejected one")
        except Exception as error:  # An exception of the engine is a finding.
            return error_violation(error)
        return None

    def _tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append(text)

    # -- steps -------------------------------------------------------------------------------------

    def _run_guarded(self, step: Step) -> None:
        rng = Random(step.seed)
        self.disk.files.rng = rng
        self.oracle.step += 1
        self._move_clock(1)
        before = [int(queue.ready_count) for queue in self._queues()]
        try:
            self._run(step, rng)
        except Crash:
            self._crash(rng, self._rule)
            return
        self.node.vhost.check()
        follow(self._mirrors, self._queues())
        self._watch.check()
        if step.kind == "publish":
            self._check_refusals(before)

    def _run(self, step: Step, rng: Random) -> None:
        files = self.disk.files
        if step.kind in CLIENT_STEPS:
            self.clients.run(step)
            self.node.turn()
            return
        match step.kind:
            case "publish":
                self.publisher.publish(step)
                self.node.turn()
            case "run":
                for _ in range(step.number(1)):
                    self.node.run(step.text(0))
            case "finish":
                for _ in range(step.number(1)):
                    self.node.finish(step.text(0))
            case "idle":
                self._idle()
            case "tick":
                self._move_clock(step.number(0))
                self.node.tick()
            case "page":
                queue = self._queues()[step.number(0)]
                target = step.number(1)
                queue.backing.memory.set_target(UNLIMITED if target < 0 else target)
            case "policy":
                self._set_policy(step.number(0), step.number(1))
            case "crash":
                self._crash(rng, step.text(0))
            case "crash_within":
                files.crash_after = step.number(0)
                self._rule = step.text(1)
            case "fault":
                kinds = (step.text(0),) if step.text(0) else ()
                files.faults.append(Fault(kinds, step.number(1), step.number(2), step.number(3)))
            case "disk_full":
                files.capacity = files.used_bytes() + step.number(0)
            case "disk_free":
                files.capacity = 0
            case "stop":
                self.clients.drop_all()
                self.node.stop()
                self._crash(rng, KILL)

    def _queues(self) -> list[Queue]:
        return [self.node.vhost.queues[b"q%d" % index] for index in range(QUEUES)]

    def _move_clock(self, ms: int) -> None:
        self._now_ms += ms
        self.node.now_ms = self._now_ms

    def _set_policy(self, queue: int, index: int) -> None:
        """Give a queue the policy `index` of the history, or none if there is no such policy."""
        vhost = self.node.vhost
        name = f"p{queue}"
        base = self.history.rules[queue]
        policy = (*self.history.policies, QueueRules())[index]
        if base.dead_letters == FANOUT and policy.dead_letters >= 0:
            # The model knows no routing key of dead letters that a fan-out gets.
            policy = replace(policy, dead_letters=NOWHERE)
        if not policy.definition():
            vhost.delete_parameter("policy", name)
            vhost.add_changes([DeleteParameter(VHOST, "policy", name)])
        else:
            value = {
                "pattern": f"^q{queue}$",
                "definition": policy.definition(),
                "priority": 0,
                "apply-to": "queues",
            }
            text = json.dumps(value)
            self.oracle.book.add(queue, merged(base, policy))
            vhost.put_parameter("policy", name, text)
            vhost.add_changes([PutParameter(VHOST, "policy", name, text)])
        self.node.turn()

    def _check_refusals(self, before: list[int]) -> None:
        """Violation if a publish took a queue that refuses publishes beyond its limit."""
        for index, queue in enumerate(self._queues()):
            limit = queue.limit
            if limit is None or limit.overflow == DROP_HEAD or limit.messages < 0:
                continue
            if queue.ready_count > max(limit.messages, before[index]):
                raise Violation(
                    "limit", f"q{index} has {queue.ready_count} messages of {limit.messages}"
                )

    def _idle(self) -> None:
        self._rest(self.node)
        files = self.disk.files
        is_failing = bool(files.capacity) or any(fault.times for fault in files.faults)
        if files.failed_calls > self._failed_calls:
            self._failed_calls = files.failed_calls
            self._retried_ms = self._now_ms + RETRY_MS
        if is_failing or self._now_ms < self._retried_ms or self.node.journal.has_pending():
            return
        self.oracle.rested()
        for index, queue in enumerate(self._queues()):
            limit = queue.limit
            if limit is not None and limit.overflow == DROP_HEAD and is_over(limit, queue):
                raise Violation("limit", f"q{index} keeps {queue.ready_count} messages at rest")

    def _rest(self, node: SimulatedNode) -> None:
        node.drain()
        for _ in range(2):
            # The timer writes what waits for the next batch, and begins what time has made due.
            self._now_ms = node.now_ms = max(self._now_ms, node.now_ms) + REST_MS
            node.tick()
            node.drain()

    # -- down and up -------------------------------------------------------------------------------

    def _start(self) -> None:
        self._failed_before_start = self.disk.files.failed_calls
        self.node = self._new_node(self.disk)
        self._mirrors = {}
        self.node.start()
        self.publisher = Publisher(self.node, self.oracle, self._next_number)
        self.clients = ConsumingClients(self.node, self.oracle, QUEUES)
        self.node.turn()

    def _new_node(self, disk: SimulatedDisk) -> SimulatedNode:
        node = SimulatedNode(disk, self.history.limits, _Unwatched(), self._now_ms, self._parts)

        def watch_circles() -> None:
            if sum(node.vhost.dead_letters.counts.values()) > LETTERS_MAX:
                raise EndlessCircle

        node.before_output = watch_circles
        return node

    def _crash(self, rng: Random, rule: str) -> None:
        self._tell(f"        crash ({rule})")
        self.crash_count += 1
        self.disk.files.crash_after = -1
        self.disk.files.capacity = 0
        self._next_number = self.publisher.next_number
        self.disk.crash(rng, rule)
        self.oracle.crashed()
        twin = self.disk.fork()
        node = self._new_node(twin)
        node.start()
        self._judge(node)
        check_rest(node)
        self._start()

    def _judge(self, node: SimulatedNode) -> None:
        """Drain `node`, and let the oracle judge its messages."""
        ends = [node.now_ms, node.now_ms]

        def late() -> None:
            ends[0] = node.now_ms
            node.now_ms += 2 * DELAY_MS_MAX
            for _ in range(LATE_TICKS_MAX):
                if not node.vhost.delayed.buckets:
                    break
                node.tick()
                node.drain()
                node.now_ms += REST_MS
            ends[1] = node.now_ms

        found = drain(node, QUEUES, late)
        self._tell(f"        found {[tuple(each.stay) for each in found]}")
        self.oracle.check_found(found, ends[0], ends[1])
        for queue in node.vhost.queues.values():
            if queue.ready_count:
                raise Violation("starved", f"{queue.name!r} keeps {queue.ready_count} messages")

    def _finish(self) -> None:
        files = self.disk.files
        files.crash_after = -1
        files.faults.clear()
        files.capacity = 0
        self.clients.drop_all()
        # Twice, since a failed commit is retried after a pause.
        for _ in range(2):
            self.node.drain()
            self._move_clock(RETRY_MS)
            self.node.tick()
        self._idle()
        self._move_clock(RETRY_MS)
        self._idle()
        if self.publisher.unconfirmed:
            raise Violation("confirm", f"{self.publisher.unconfirmed} were never confirmed")
        self._judge(self.node)
        if files.failed_calls == self._failed_before_start:
            # Files that a failed call has left behind go at the next start.
            check_rest(self.node)


def is_over(limit: LengthLimit, queue: Queue) -> bool:
    """Whether a queue has more than its limit."""
    return limit.is_exceeded(queue.ready_count, queue.ready_body_bytes)


def merged(base: QueueRules, policy: QueueRules) -> QueueRules:
    """The rules of a queue under a policy: its arguments win, and of two numbers the lower."""

    def lower(one: int, other: int) -> int:
        return min(one, other) if one and other else one or other

    target = policy.dead_letters if base.dead_letters == NOWHERE else base.dead_letters
    if base.dead_letters == SAME_KEY and policy.dead_letters >= 0:
        # The exchange is that of the argument, and the routing key that of the policy.
        target = policy.dead_letters
    return QueueRules(
        lower(base.ttl_ms, policy.ttl_ms),
        lower(base.max_length, policy.max_length),
        lower(base.max_bytes, policy.max_bytes),
        base.overflow if base.has_limit() else policy.overflow,
        target,
        base.max_priority,
        base.is_single_active,
        base.is_quorum,
        lower(base.delivery_limit, policy.delivery_limit),
        base.is_lazy,
    )


def run_leaving_seeds(seeds: range) -> Outcome:
    """Run the histories of `seeds`."""
    return run_each(seeds, lambda seed: LeavingSimulation(make_leaving_history(seed)))


def leaving_story(seed: int, is_shrunken: bool = True) -> list[str]:
    """The story of a history, line by line; if it fails, of the shortest found that does."""
    history = make_leaving_history(seed)
    violation = LeavingSimulation(history).run()
    if violation is not None and is_shrunken:
        kind = violation.kind

        def fails(steps: tuple[Step, ...]) -> bool:
            found = LeavingSimulation(replace(history, steps=steps)).run()
            return found is not None and found.kind == kind

        history = replace(history, steps=shortened(history.steps, fails, RUNS_MAX))
    story = [f"seed {seed}, {history.limits}"]
    story += [f"q{index}: {rules}" for index, rules in enumerate(history.rules)]
    violation = LeavingSimulation(history, story).run()
    return [*story, f"=> {violation}" if violation is not None else f"seed {seed} holds"]
