"""What a history knows of sinks: which batch each has committed, and of every staged message where it is.

    staged      in a log that no commit has named: nobody sees it, and it may be dropped
    committed   the commit is asked for; once it is durable the message comes to its queues, whatever happens
    published   a node has put it there; a crash takes that back, unless its batch is on disk
    durable     it is there, or was, and is never published again

A second node that starts from a copy of the disk tells after every restart which commits are on it, and which messages
are still to be published (`restarted`). Numbers of batches ascend; -1 is none.
"""

from __future__ import annotations

from warrenmq.testing.models.messages import QueueModel, Violation
from warrenmq.testing.models.oracle import Oracle
from warrenmq.testing.models.sink_records import NONE, SinkModel, StagedMessage, StageModel


class StagedMessages:
    """The sinks of one vhost."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.sinks: dict[int, SinkModel] = {}
        # Something was published since this was last reset.
        self.has_published = False
        # Of logs that were named by a commit, by their numbers.
        self.named: dict[int, StagedMessage] = {}

    def sink(self, index: int) -> SinkModel:
        """The sink of that number."""
        return self.sinks.setdefault(index, SinkModel(f"s{index}"))

    def name(self, sink: SinkModel, batch: int, stages: list[StageModel]) -> None:
        """A commit is asked for: from now on the messages of `stages` may come, in this order."""
        sink.asked = batch
        previous: StagedMessage | None = None
        for stage in stages:
            stage.is_named = True
            for message in stage.messages:
                message.previous = previous
                previous = message
                self.named[message.content.number] = message
                self.oracle.contents[message.content.number] = message.content

    def unname(self, stages: list[StageModel]) -> None:
        """It is refused, or was lost in a crash."""
        for stage in stages:
            stage.is_named = False
            for message in stage.messages:
                self.named.pop(message.content.number, None)

    def expect(self, number: int) -> StagedMessage:
        """A node publishes a staged message: which one it is, if it may."""
        message = self.named.get(number)
        if message is None:
            raise Violation(
                "sink", f"message {number} was staged, is published, and its batch is not committed"
            )
        if message.is_durable:
            raise Violation("twice", f"message {number} was staged and is published again")
        return message

    def published(
        self, message: StagedMessage, publisher: object, places: list[tuple[QueueModel, int, int]]
    ) -> None:
        """`publisher` has put it at these places: queue, seq id, expiry (ms). What it was before, a crash has undone."""
        number = message.content.number
        if message.published_by is publisher:
            raise Violation(
                "twice", f"message {number} was staged and is published twice by one node"
            )
        was_delivered = {copy.queue.id for copy in message.copies if copy.was_delivered}
        for copy in message.copies:
            if copy.queue.copies.get(number) is copy:
                del copy.queue.copies[number]
        self.has_published = True
        message.published_by = publisher
        message.copies = []
        for queue, seq, expiry_ms in places:
            copy = self.oracle.enqueue(message.content, queue, seq, expiry_ms)
            copy.was_delivered = queue.id in was_delivered
            message.copies.append(copy)
        self.oracle.moved.append(message)

    def check_all_published(self, sink: SinkModel) -> None:
        """The broker says that everything of the sink is in its queues."""
        for message in sink.committed_messages():
            if message.published_by is None and not message.is_durable:
                raise Violation(
                    "sink",
                    f"message {message.content.number} of sink {sink.name} is committed and not published",
                )

    # -- restarts ----------------------------------------------------------------------------------

    def restarted(
        self, batches: dict[str, int], stages: dict[int, int], published: set[int]
    ) -> None:
        """What a start from the disk found, before `Oracle.found` is told of the queues: the last batch of each sink,
        logs that no commit names with the number of their messages, and the messages that were published once more."""
        known = {sink.name: sink for sink in self.sinks.values()}
        for name in batches:
            if name not in known:
                raise Violation("sink", f"nobody knows of sink {name}")
        for sink in known.values():
            self._restart_sink(sink, batches.get(sink.name, NONE))
            for message in sink.committed_messages():
                self._restart_message(message, message.content.number in published)
            self._restart_stages(sink, stages)
        if stages:
            raise Violation("sink", f"staging logs {sorted(stages)} are there after a restart")

    def _restart_sink(self, sink: SinkModel, batch: int) -> None:
        allowed = {sink.batch, max(sink.batch, sink.former)}
        if sink.asked > sink.batch:
            allowed.add(sink.asked)
        if sink.is_deleting:
            allowed.add(NONE)
        if batch not in allowed:
            raise Violation(
                "sink",
                f"sink {sink.name} has committed {batch} after a restart, not one of {sorted(allowed)}",
            )
        if batch != sink.asked:
            self.unname([stage for stage in sink.stages.values() if stage.batch > sink.batch])
        if batch == NONE and sink.batch != NONE:
            # It is deleted, and nobody was told. While it publishes it cannot be, so all of it is in its queues. The numbers
            # of its batches would be taken for those of the next sink with this name.
            for message in sink.committed_messages():
                self._restart_message(message, False)
            sink.forget_committed()
        sink.batch = batch
        sink.asked = sink.former = NONE
        sink.is_deleting = False

    def _restart_message(self, message: StagedMessage, is_published_again: bool) -> None:
        if message.is_durable:
            return
        if is_published_again:
            # The copies of before are gone with the crash; the node will make new ones.
            for copy in message.copies:
                copy.is_must = False
            return
        if message.published_by is None:
            raise Violation(
                "lost",
                f"message {message.content.number} was committed to a sink and is not published",
            )
        # The disk knows that it was published, so it must know where.
        message.is_durable = True
        for copy in message.copies:
            copy.is_must = copy.is_must or copy.survives()

    def _restart_stages(self, sink: SinkModel, found: dict[int, int]) -> None:
        for stage in list(sink.stages.values()):
            if stage.is_named:
                continue
            count = found.pop(stage.id, NONE)
            if count == NONE:
                if stage.is_finished and not stage.is_dropped:
                    raise Violation("lost", f"staging log {stage.id} of sink {sink.name} is gone")
                del sink.stages[stage.id]
            elif stage.is_dropped and count < len(stage.messages):
                # It was dropped, which could not be stored; the acks of its messages could.
                stage.is_finished = False
            elif not stage.is_ending or (count != len(stage.messages) and stage.is_finished):
                raise Violation(
                    "sink",
                    f"staging log {stage.id} of sink {sink.name} has {count} messages after a restart, not "
                    f"{len(stage.messages)}",
                )
            else:
                # If nobody was told that it is complete, what was not on disk may be missing.
                stage.is_finished = count == len(stage.messages)
