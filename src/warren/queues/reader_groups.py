"""The reader groups of a vhost by name: opening, taking over, rebinding, and what all of them hold."""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from warren.queues.entry import Entry
from warren.queues.queue import Queue
from warren.queues.reader_group import (
    DATA_LOSS,
    NOT_FOUND,
    PRECONDITION,
    GroupError,
    ReaderGroup,
    text,
)


@final
class ReaderGroups:
    """The reader groups of one vhost, by name."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, ReaderGroup] = {}

    def open(
        self, name: bytes, opener: str, queue: Queue, from_latest: bool, may_rebind: bool
    ) -> ReaderGroup:
        """Create the group or take it over; its epoch is a new one. The caller makes the definition durable.

        A group of an earlier incarnation of the queue is refused unless `may_rebind`: then it begins anew at the
        first message of this one. `from_latest` counts only when the group is created.
        """
        if not queue.durable:
            raise GroupError(
                PRECONDITION,
                f"queue '{text(queue.name)}' is not durable: a reader group needs a durable queue, "
                "because what it reserves must outlive a restart",
            )
        self._refuse_second_holder(name, queue)
        group = self.by_name.get(name)
        if group is None:
            start: i64 = queue.next_seq if from_latest else 0
            group = ReaderGroup(name, 1, queue.id, start, start)
            group.queue = queue
            self.by_name[name] = group
        else:
            if group.queue_id != queue.id:
                self._rebind(group, queue, may_rebind)
            group.epoch += 1
        group.opener = opener
        queue.journals_transient = True
        return group

    def get(self, name: bytes) -> ReaderGroup:
        """The group called `name`; GroupError when there is none."""
        group = self.by_name.get(name)
        if group is None:
            raise GroupError(NOT_FOUND, f"no reader group '{text(name)}'")
        return group

    def recover(
        self, name: bytes, epoch: i64, queue_id: i64, acked: i64, reserved: i64, queue: Queue | None
    ) -> None:
        """Put a group back from its definition; `queue` is the one with that id, None when it is gone."""
        group = ReaderGroup(name, epoch, queue_id, acked, max(acked, reserved))
        self.by_name[name] = group
        if queue is not None:
            group.attach(queue)

    def delete(self, name: bytes, now_ms: i64) -> None:
        """Forget the group; what it holds is ready again."""
        self.get(name).release(now_ms)
        del self.by_name[name]

    def held_of(self, queue: Queue, first: i64, end: i64) -> list[Entry]:
        """What groups hold of [first, end) of `queue`: unacked entries like those of channels."""
        held: list[Entry] = []
        for group in self.by_name.values():
            if group.queue is queue:
                held.extend(group.held_between(first, end))
        return held

    def forget(self, queue: Queue, lost: list[Entry]) -> None:
        """The contents of what may be held of `queue` cannot be had, whoever asked for them; it is settled."""
        for group in self.by_name.values():
            if group.queue is queue:
                group.forget(lost)

    def when_attached(self, callback: Callable[[], None]) -> bool:
        """Is any group still reading what it held before the start? Then `callback` is called when it has."""
        for group in self.by_name.values():
            if group.is_attaching:
                group.attach_watchers.append(callback)
                return True
        return False

    def on_queue_deleted(self, queue: Queue, now_ms: i64) -> None:
        """A queue is gone. Its groups stay, so that their readers learn of it instead of starting over silently."""
        for group in self.by_name.values():
            if group.queue is queue:
                group.detach(now_ms)

    def _refuse_second_holder(self, name: bytes, queue: Queue) -> None:
        # It could not get past the first message the other one holds, and would wait for it in silence.
        for group in self.by_name.values():
            if group.name != name and group.queue is queue and len(group.held) > 0:
                raise GroupError(
                    PRECONDITION,
                    f"reader group '{text(group.name)}' holds {len(group.held)} messages of queue "
                    f"'{text(queue.name)}'; go on with that group or delete it",
                )

    def _rebind(self, group: ReaderGroup, queue: Queue, may_rebind: bool) -> None:
        if group.queue is not None:
            raise GroupError(
                PRECONDITION,
                f"reader group '{text(group.name)}' reads queue '{text(group.queue.name)}'; "
                "another queue needs a group of its own",
            )
        if not may_rebind:
            raise GroupError(
                DATA_LOSS,
                f"reader group '{text(group.name)}' was reading an earlier queue (incarnation {group.queue_id}) that "
                f"is deleted; queue '{text(queue.name)}' is a new one (incarnation {queue.id})",
            )
        group.queue = queue
        group.queue_id = queue.id
        group.held = []
        group.acked = 0
        group.acked_durable = 0
        group.reserved = 0
