"""The steps of a history in which consumers and streams read mirrored queues, and sinks write."""

from __future__ import annotations

from typing import Final

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

# Time in which groups are deleted (ms).
_DELETE_MS: Final = 1000
_STEP_MS: Final = 50


class SparkSteps(NodeSteps):
    """Runs these steps."""

    def __init__(self) -> None:
        # Reader groups, by their queue; sinks by node.
        self.readers: dict[bytes, GroupReader] = {}
        self._writers: dict[str, SinkWriter] = {}
        # Consumers at all nodes, by the number of their queue.
        self._feedings: dict[int, Feeding] = {}
        self._batches = 0

    def take_answers(self) -> None:
        """Let streams take what they were answered."""
        for reader in self.readers.values():
            reader.take_answers()
        for writer in self._writers.values():
            writer.take_answers()

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
        """Commit a batch of the sink at a node."""
        member = self.world.members.get(self.world.names[step.number(0)])
        if member is None or member.is_frozen or not self._keeps_all(step.number(1)):
            return
        writer = self._writers.get(member.name)
        if writer is None or writer.is_lost:
            writer = SinkWriter(self.world, f"s{member.name}", member)
            self._writers[member.name] = writer
        if not writer.is_busy:
            self._batches += 1
            writer.write(queue_name(step.number(1)), self._batches, step.number(2))

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
