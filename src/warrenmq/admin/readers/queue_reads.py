"""Calls of one session that read queues without reserving: description, seek by time, peek."""

from collections.abc import Callable

from warrenmq.admin.node import AdminVhost
from warrenmq.admin.protocol import requests
from warrenmq.admin.readers.seek import seek_time
from warrenmq.queues.backing.loading import peek_anywhere
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import refuse_exclusive, refuse_unreadable
from warrenmq.queues.readers.record_block import encode_block
from warrenmq.vocabulary.error_codes import DATA_LOSS, NOT_FOUND, PRECONDITION
from warrenmq.vocabulary.names import name_text


class QueueReads:
    """Reads queues of `vhost`; each request is answered once, through `reply`, or GroupError rises.

    `expect_read` raises GroupError for the name of a queue that the session may not read.
    """

    def __init__(
        self,
        vhost: AdminVhost,
        expect_read: Callable[[bytes], None],
        reply: Callable[[requests.Reply], None],
    ) -> None:
        self._vhost = vhost
        self._expect_read = expect_read
        self._reply = reply

    def describe(self, request: requests.DescribeQueue) -> None:
        """Answer with the queue's incarnation and the positions of its ready messages."""
        self._expect_read(request.queue)
        queue = self._vhost.queue(request.queue)
        if queue is None:
            self._vhost.expect_here(request.queue)
            vhost = name_text(self._vhost.name)
            raise GroupError(NOT_FOUND, f"no queue '{name_text(request.queue)}' in vhost '{vhost}'")
        level = _level_of(queue, request.level)
        begun: list[int] = []
        if request.level is not None:
            begun = [int(queue.level_of(each.ledger)) for each in queue.backings()]
        self._reply(
            requests.QueueDescription(
                incarnation=queue.incarnation,
                durable=queue.durable,
                ready=0 if level is None else level.ready.count,
                first_ready=1 if level is None else level.first_ready_seq,
                tail=1 if level is None else level.ledger.next_seq,
                levels=begun,
            )
        )

    def seek_time(self, request: requests.SeekTime) -> None:
        """Answer with the position of the first ready message from a time on."""
        self._expect_read(request.queue)
        queue = self._queue_of(request.queue, request.incarnation)
        refuse_unreadable(queue)
        seek_time(queue, request.ms, lambda seq: self._reply(requests.TimeSought(seq)))

    def peek(self, request: requests.Peek) -> None:
        """Answer with messages of a range, which stay where they are."""
        self._expect_read(request.queue)
        if request.start > request.end:
            raise GroupError(
                PRECONDITION, f"range [{request.start}, {request.end}) ends before it begins"
            )
        queue = self._queue_of(request.queue, request.incarnation)
        level = _level_of(queue, request.level)
        if level is None:
            name = name_text(request.queue)
            raise GroupError(NOT_FOUND, f"queue '{name}' has no level {request.level}")

        def on_entries(found: list[Entry]) -> None:
            if queue.is_deleted:
                # The queue was deleted while the messages were loading: a gap must not look like
                # the end.
                text = _deleted_text(request.queue, request.incarnation)
                self._reply(requests.ErrorReply(DATA_LOSS, text))
                return
            entries = [entry for entry in found if entry.seq < request.end]
            is_last = len(entries) < len(found) or not entries
            next_seq = request.end if is_last else entries[-1].seq + 1
            block = encode_block(entries, request.with_bodies, self._vhost.store_id)
            self._reply(requests.Fetched(next_seq, memoryview(block)))

        peek_anywhere(
            level,
            request.start,
            request.end,
            request.max_messages,
            request.max_bytes,
            on_entries,
        )

    def _queue_of(self, name: bytes, incarnation: int) -> Queue:
        """The queue `name`; GroupError when it is deleted or has another incarnation."""
        queue = self._vhost.queue(name)
        if queue is None or queue.incarnation != incarnation:
            self._vhost.expect_here(name, incarnation)
            raise GroupError(DATA_LOSS, _deleted_text(name, incarnation))
        return queue


def _level_of(queue: Queue, number: int | None) -> PagedQueue | None:
    """The level `number` of a queue; None if it has not begun.

    Without a number it is the whole queue. GroupError when it cannot be read.
    """
    if number is None:
        refuse_unreadable(queue)
        return queue.backing
    refuse_exclusive(queue)
    return queue.level_at(number)


def _deleted_text(name: bytes, incarnation: int) -> str:
    return f"queue '{name_text(name)}' (incarnation {incarnation}) is deleted"
