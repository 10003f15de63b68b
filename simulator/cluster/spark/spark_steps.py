"""The steps of a history in which consumers and streams read mirrored queues, and sinks write."""

from __future__ import annotations

from typing import Final

from simulator.cluster.histories import FIXED_QUEUES
from simulator.cluster.node_steps import NodeSteps, queue_name
from simulator.cluster.spark.feeding import Feeding
from simulator.cluster.spark.group_reader import GroupReader
from simulator.cluster.spark.sink_writer import SinkWriter
from simulator.cluster.world import World
from simulator.leaving.histories import Step
from simulator.models.messages import Violation
from simulator.simulated.admin import AdminClient
from simulator.simulated.node import VHOST
from warrenmq.admin.protocol.requests import DeleteGroup, ErrorReply, GroupDeleted, Reply
from warrenmq.vocabulary.error_codes import NOT_FOUND

# Time in which groups are deleted, and in which a batch is committed when all is well (ms).
_DELETE_MS: Final = 1000
_COMMIT_MS: Final = 20_000
# Steps of time in which a batch is staged.
_STAGE_STEPS: Final = 100
_FINE_MS: Final = 5
# Who dies with a batch of a sink: the node that was asked to commit it, all that have its stages,
# or the master of a queue.
ASKED: Final = 0
ALL_SIDES: Final = 1
MASTERS: Final = 2
_STEP_MS: Final = 50


class SparkSteps(NodeSteps):
    """Runs these steps."""

    def __init__(self) -> None:
        # Reader groups, by their queue; programs that write to sinks, by number.
        self.readers: dict[bytes, GroupReader] = {}
        self._writers: dict[int, SinkWriter] = {}
        # Consumers at all nodes, by the number of their queue.
        self._feedings: dict[int, Feeding] = {}

    def take_answers(self) -> None:
        """Let streams take what they were answered."""
        for reader in self.readers.values():
            reader.take_answers()
        for writer in self._writers.values():
            writer.resume()

    def end_feedings(self) -> None:
        """Let the consumers at all nodes leave."""
        for feeding in self._feedings.values():
            feeding.end()

    def end_streams(self) -> None:
        """Let all readers leave."""
        for reader in self.readers.values():
            reader.end()

    def _feed(self, step: Step) -> None:
        """Let consumers at all nodes live on a queue for a time."""
        feeding = self._feedings.get(step.number(0))
        if feeding is None:
            feeding = Feeding(self.world, queue_name(step.number(0)), f"guest{step.number(0)}.")
            self._feedings[step.number(0)] = feeding
        feeding.run(step.number(1))

    def _read(self, step: Step) -> None:
        """Let the group of a queue reserve and read messages."""
        reader = self._reader(step.number(0))
        if reader is not None:
            reader.read(step.number(1))

    def _read_ack(self, step: Step) -> None:
        reader = self.readers.get(queue_name(step.number(0)))
        if reader is not None:
            reader.ack(step.number(1))

    def _read_again(self, step: Step) -> None:
        reader = self.readers.get(queue_name(step.number(0)))
        if reader is not None:
            reader.read_again()

    def _read_late(self, step: Step) -> None:
        reader = self.readers.get(queue_name(step.number(0)))
        if reader is not None:
            reader.call_late()

    def _read_leave(self, step: Step) -> None:
        reader = self.readers.get(queue_name(step.number(0)))
        if reader is not None:
            reader.leave()

    def _reader(self, queue: int) -> GroupReader | None:
        if self.world.recording.promises.of(queue_name(queue).decode()).max_priority:
            # No group may read it.
            return None
        reader = self.readers.get(queue_name(queue))
        if reader is None:
            reader = GroupReader(self.world, f"g{queue}", queue_name(queue))
            self.readers[queue_name(queue)] = reader
        return reader

    def _stage(self, step: Step) -> None:
        """Begin a batch of a sink."""
        self._write(step.number(0), step.number(1))

    def _sink_strike(self, step: Step) -> None:
        """Let nodes die soon after a batch is committed, or while it is.

        The one that publishes it and perhaps the other one that has its stages, or masters of the
        queues that it is for.
        """
        world, writer = self.world, self._write(step.number(0), step.number(1))
        for _ in range(_STAGE_STEPS):
            if writer is None or writer.is_committing or writer.is_idle:
                break
            world.pump()
            world.advance(_FINE_MS, _FINE_MS)
            writer.resume()
        if writer is None or not writer.is_committing:
            return
        for _ in range(step.number(2)):
            world.pump()
            world.advance(_FINE_MS, _FINE_MS)
        nodes, target = writer.nodes, step.number(3)
        if target == MASTERS:
            names = {each.name for queue in range(FIXED_QUEUES) for each in self._masters(queue)}
            nodes = [world.rng.choice(sorted(names))] if names else []
        for name in nodes if target == ALL_SIDES else nodes[:1]:
            if name in world.members:
                world.crash(name, step.text(4), False)
            world.advance(step.number(5), _STEP_MS)
            writer.resume()

    def _write(self, number: int, count: int) -> SinkWriter | None:
        queues = [queue_name(each) for each in range(FIXED_QUEUES) if self._keeps_all(each)]
        # Somebody may have to declare the queues yet.
        known = [each for each in queues if self._is_known(each)]
        if not known:
            return None
        writer = self._writers.get(number)
        if writer is None:
            writer = self._writers[number] = SinkWriter(self.world, f"s{number}")
        writer.write(known, count)
        return writer

    def _is_known(self, queue: bytes) -> bool:
        return all(each.vhost.taker(queue) is not None for each in self.world.members.values())

    def finish_batches(self) -> None:
        """Let the programs commit what they have begun, in a cluster without faults."""
        deadline_ms = self.world.now_ms + _COMMIT_MS
        while not all(writer.is_idle for writer in self._writers.values()):
            if self.world.now_ms > deadline_ms:
                raise Violation("stuck", "a batch of a sink is not committed")
            for writer in self._writers.values():
                writer.resume()
            self.world.pump()
            self.world.advance(_STEP_MS, _STEP_MS)

    def _keeps_all(self, queue: int) -> bool:
        """Whether messages stay in a queue until they are consumed, however late they come."""
        rules = self.world.recording.promises.of(queue_name(queue).decode())
        return not rules.has_limit() and not rules.ttl_ms


def delete_groups(world: World) -> None:
    """Delete all reader groups, so that what they have reserved is in the queues again."""
    deletions: list[AdminClient] = []

    def on_deleted(reply: Reply) -> None:
        is_gone = isinstance(reply, ErrorReply) and reply.code == NOT_FOUND
        if not isinstance(reply, GroupDeleted) and not is_gone:
            raise Violation("group", f"a group cannot be deleted: {reply}")

    for member in world.members.values():
        vhost = member.admin.vhost(VHOST)
        assert vhost is not None
        for name in sorted(vhost.reader_groups.by_name):
            client = AdminClient(member)
            client.ask(DeleteGroup(name.decode()), on_deleted)
            member.has_news = True
            deletions.append(client)
    deadline_ms = world.now_ms + _DELETE_MS
    while any(client.then is not None for client in deletions):
        if world.now_ms > deadline_ms:
            raise Violation("stuck", "a group is not deleted")
        for client in deletions:
            client.take_answers()
        world.advance(_STEP_MS, _STEP_MS)
