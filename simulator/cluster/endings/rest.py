"""A cluster at rest: what must be true of it once all faults are over."""

from __future__ import annotations

from typing import Final

from simulator.cluster.clients import Consumer
from simulator.cluster.endings.mirror_rest import mirror_unrest
from simulator.cluster.member import Member
from simulator.cluster.recording.features import EXPIRES_MS
from simulator.cluster.world import World
from simulator.models.messages import Violation

# Time in which a cluster without faults must come to rest (ms).
REST_MS_MAX: Final = 30_000
# Jobs that wait for a simulated disk from which on the time does not begin, and how long that may
# last (ms): a lane does about one job a step, and a lazy queue may have begun hundreds at once.
_JOBS_MAX: Final = 20
_JOBS_MS_MAX: Final = 300_000
_STEP_MS: Final = 50
# A cluster that looks as if it were at rest may have a timer that is due (ms).
_AFTERWARDS_MS: Final = 300
# By when the cluster has deleted a queue that has expired (ms).
_EXPIRY_MS: Final = 1000


def rest(world: World) -> None:
    """Let the cluster come to rest; Violation if it takes too long."""
    begun_ms = world.now_ms
    deadline_ms = begun_ms + REST_MS_MAX
    calm_since_ms = begun_ms
    while world.now_ms < deadline_ms:
        world.advance(_STEP_MS, _STEP_MS)
        if _most_jobs(world) > _JOBS_MAX and world.now_ms < begun_ms + _JOBS_MS_MAX:
            deadline_ms = world.now_ms + REST_MS_MAX
        if _unrest(world):
            calm_since_ms = world.now_ms
        elif world.now_ms - calm_since_ms >= _AFTERWARDS_MS:
            return
    raise Violation("stuck", f"{_unrest(world)} after {REST_MS_MAX} ms without faults")


def _most_jobs(world: World) -> int:
    """The jobs in the longest lane of all disks."""
    return max(
        (len(lane.waiting) for member in world.members.values() for lane in member.lanes.values()),
        default=0,
    )


def _unrest(world: World) -> str:
    """The part of the cluster that is not at rest, or ""."""
    if not world.network.is_idle():
        return "the network is not idle"
    for member in world.members.values():
        if not member.is_announced():
            return f"{member.name} is not announced"
        if not member.is_followed():
            return f"{member.name} has not followed {world.model.revision}"
        # While nodes are away, a sink whose queues refuse messages tries again and again.
        is_whole = len(world.members) == len(world.names)
        if is_whole and (member.has_work() or member.journal.has_pending()):
            return f"{member.name} works with its disk"
        for other in world.members:
            if other != member.name and not member.ends.is_reachable(other):
                return f"{member.name} has no link to {other}"
    for client in world.clients:
        missing = client.waits_for()
        if missing:
            return missing
    return _hand_overs(world) or mirror_unrest(world)


def _hand_overs(world: World) -> str:
    """Who has messages that wait for the way to their queues, while all nodes run; or ""."""
    if len(world.members) < len(world.names):
        return ""
    for member in world.members.values():
        sinks = member.vhost.staging.sinks.values()
        if member.vhost.delayed.buckets or any(sink.is_busy() for sink in sinks):
            return f"{member.name} hands over messages"
    return ""


def check_transient(world: World) -> None:
    """Violation if the cluster has transient queues of nodes that do not run.

    A mirrored queue waits for a promotion, or for its node.
    """
    for queue in world.model.load().queues:
        if not queue.durable and not queue.group and queue.node.decode() not in world.members:
            name, home = queue.name.decode(), queue.node.decode()
            raise Violation("transient", f"{name} of {home}, which is dead, is still there")


def check_expired(world: World) -> None:
    """Let all queues expire that nobody uses; Violation if one does not."""
    world.advance(max(EXPIRES_MS) + _EXPIRY_MS, _STEP_MS)
    for queue in world.model.load().queues:
        if world.recording.promises.of(queue.name.decode()).expires_ms:
            raise Violation("expired", f"{queue.name.decode()} is unused, and does not expire")
    rest(world)


def check_rest(world: World) -> None:
    """Violation unless all nodes have the topology of the store, and clients hold nothing."""
    shared = world.model.load()
    queues = {queue.name: (queue.birth, queue.node.decode()) for queue in shared.queues}
    bindings = {
        (each.source, each.destination, each.destination_is_queue, each.key)
        for each in shared.bindings
    }
    exchanges = {exchange.name for exchange in shared.exchanges}
    for member in world.members.values():
        _differ(member, "queues", _queues(member), queues)
        _differ(member, "bindings", _bindings(member), bindings)
        found = {each for each in member.vhost.router.exchanges if each.startswith(b"x")}
        _differ(member, "exchanges", found, exchanges)
        member.vhost.check()
        for queue in member.vhost.queues.values():
            if queue.unacked_count:
                text = f"{queue.name.decode()} has {queue.unacked_count} messages of clients gone"
                raise Violation("held", text)
    for each in shared.queues:
        if each.is_exclusive:
            raise Violation("exclusive", f"{each.name.decode()} outlives its connection")


def _queues(member: Member) -> dict[bytes, tuple[int, str]]:
    found = {
        queue.name: (int(queue.definition.birth), member.name)
        for queue in member.vhost.queues.values()
    }
    for remote in member.vhost.remote_queues.values():
        found[remote.name] = (int(remote.definition.birth), remote.home.name.decode())
    return found


def _bindings(member: Member) -> set[tuple[bytes, bytes, bool, bytes]]:
    return {
        (
            binding.source.name,
            binding.destination.name,
            binding.destination.is_queue,
            binding.key,
        )
        for exchange in member.vhost.router.exchanges.values()
        for binding in exchange.outgoing.values()
    }


def _differ(member: Member, kind: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"other {kind}", f"{member.name} has {found}, and the store {expected}")


def drain(world: World, member: Member, queue: bytes, life: str) -> None:
    """Consume a queue through `member` until it is empty; Violation if that comes to a halt."""
    client = Consumer(member, world.recording, f"drain of {life}")
    world.clients.append(client)
    world.pump()
    client.consume(queue, 0)
    home = next(each for each in world.members.values() if queue in each.vhost.queues)
    target = home.vhost.queues[queue]
    left, changed_ms = -1, world.now_ms
    while True:
        world.advance(_STEP_MS, _STEP_MS)
        # A lazy queue reads a few messages a step.
        count = target.ready_count + target.unacked_count
        if count != left:
            left, changed_ms = count, world.now_ms
        while client.unacked:
            client.settle(len(client.unacked) - 1, True, True)
        world.pump()
        if client.is_lost:
            raise Violation("drain", f"{life} cannot be consumed through {member.name}")
        is_empty = not target.ready_count and not target.unacked_count
        if is_empty and not client.is_busy:
            break
        if world.now_ms - changed_ms > REST_MS_MAX:
            text = f"{life} keeps {target.ready_count} ready and {target.unacked_count} unacked"
            raise Violation("starved", text)
    world.recording.drained(life)
    world.recording.check_drained(life, f"{client.name}.1")
    client.on_lost()
    world.pump()
