"""Sinks of a history: the batches that each has committed, and the state of every staged message.

    staged      in a log that no commit has named: no client sees it, and it may be dropped
    committed   the commit is requested; once the commit is durable the message must reach its
                queues, whatever happens
    published   a node has put the message into its queues; a crash undoes that unless the batch
                is on disk
    durable     the message is in its queues or was, and is never published again

After every restart a second node, started from a copy of the disk, shows which commits are on disk
and which messages are still to be published (`restarted`). Batch numbers ascend; -1 is none.
"""

from __future__ import annotations

from simulator.models.messages import QueueModel, Violation
from simulator.models.oracle import Oracle
from simulator.models.sink_records import NONE, SinkModel, StagedMessage, StageModel


class StagedMessages:
    """The sinks of one vhost."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.sinks: dict[int, SinkModel] = {}
        # A message was published since the flag was last cleared.
        self.has_published = False
        # Messages of logs that a commit has named, by message number.
        self.named: dict[int, StagedMessage] = {}

    def sink(self, index: int) -> SinkModel:
        """The sink with number `index`."""
        return self.sinks.setdefault(index, SinkModel(f"s{index}"))

    def name(self, sink: SinkModel, batch: int, stages: list[StageModel]) -> None:
        """Request a commit: the messages of `stages` may be published, in this order."""
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
        """Undo `name` for a commit that was refused or lost in a crash."""
        for stage in stages:
            stage.is_named = False
            for message in stage.messages:
                self.named.pop(message.content.number, None)

    def expect(self, number: int) -> StagedMessage:
        """The staged message that a node publishes; Violation when it may not be published."""
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
        """Note that `publisher` has put the message at `places`: (queue, seq id, expiry in ms).

        The copies of an earlier publish are forgotten: a crash has undone them.
        """
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
        """Violation unless every committed message of the sink was published."""
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
        """Judge the sinks that a start found on disk; call it before `Oracle.found`.

        `batches`: last batch by name of the sink. `stages`: number of messages of each log that no
        commit names. `published`: numbers of the messages that this start published again.
        """
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
            raise Violation("sink", f"stages {sorted(stages)} are there after a restart")

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
            # The sink is deleted on disk, and no client got the answer. A sink that still publishes
            # cannot be deleted, so all its messages are in queues. Forget its logs: their batch
            # numbers would be taken for those of the next sink with this name.
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
            # The crash removed the earlier copies; the node will make new ones.
            for copy in message.copies:
                copy.is_must = False
            return
        if message.published_by is None:
            raise Violation(
                "lost",
                f"message {message.content.number} was committed to a sink and is not published",
            )
        # The disk knows that the message was published, so it must have the message in its queues.
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
                    raise Violation("lost", f"stage {stage.id} of sink {sink.name} is gone")
                del sink.stages[stage.id]
            elif stage.is_dropped and count < len(stage.messages):
                # The drop of the log could not be stored, but the acks of its messages could.
                stage.is_finished = False
            elif not stage.is_ending or (count != len(stage.messages) and stage.is_finished):
                raise Violation(
                    "sink",
                    f"stage {stage.id} of sink {sink.name} has {count} messages after a restart, not "
                    f"{len(stage.messages)}",
                )
            else:
                # No client got the answer that the log is finished, so messages may be missing from
                # it.
                stage.is_finished = count == len(stage.messages)
