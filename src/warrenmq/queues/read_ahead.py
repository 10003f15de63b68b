"""How far a queue reads ahead of its consumers, in messages and in bytes, and what it keeps in memory for them.

Reading ahead is for consumers that take what is read: the disk works while they do. A consumer that holds its messages,
or does not read its socket, takes nothing for hours, and what was read for it fills the memory meanwhile. So a queue
reads ahead

- half of `page_batch` messages at most;
- half of its room in bytes at most (`MemoryAccount.ahead_room`), which becomes smaller as more queues share the memory;
- a message that is larger than its room only when somebody can take it at once.

The oldest messages that fit into its room, and one more, stay in memory while somebody consumes the queue; the others
leave it. The room for what stays is twice what is read ahead, or a load would be undone by the next slice of paging.

No message waits for ever (`tests/queues/test_liveness.py`). While a queue has ready messages, everybody who waits for one
is in a place where somebody wakes them. In the queue's circle, or among those who wait for its head, they are only while

- a load of this queue is under way: its end asks for a share of the turn (`TurnShare.on_arrival`), whatever came;
- or that share is asked for already;
- or the queue waits for room (`Transit.waiting`): more room asks for the share.

Otherwise the circle is empty: whoever could take a message has it, and whoever could not was sent to wait for the room
that is missing, where settling, or writing to the socket, finds them. So a queue must not decide by `can_take` that
nobody wants the head, and leave those it asked in the circle.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.contents import QueueContents
from warrenmq.queues.entry import ALPHA
from warrenmq.queues.loading import HeadContents, ReadAhead
from warrenmq.queues.transit import LARGE_BYTES
from warrenmq.queues.variable_queue import LOADING, VariableQueue


def want_head(contents: QueueContents) -> None:
    """Somebody waits for the head: load it when it is on disk."""
    if contents.ready.head_state() != LOADING:
        if not contents.demand.is_paused:
            contents.on_arrival()
    elif contents.loader.current is None:
        read_ahead_of_consumers(contents, True)


def keep_ahead(contents: QueueContents, fetched: i64) -> None:
    """Read what consumers will want next before they want it; called after `fetched` messages were taken."""
    contents.loader.fetches_until_read_ahead -= fetched
    is_away = contents.ready.head_state() == LOADING
    if contents.loader.current is None and (
        contents.loader.fetches_until_read_ahead <= 0 or is_away
    ):
        contents.loader.fetches_until_read_ahead = read_ahead_of_consumers(
            contents, is_away and contents.demand.circle.has_ready()
        )


def read_ahead_of_consumers(contents: QueueContents, is_wanted: bool) -> i64:
    """Load what consumers will want next, unless enough is in memory; returns after how many fetches to look again.

    `is_wanted`: somebody takes the head as soon as it is there, whatever its size.
    """
    ready = contents.ready
    batch = contents.host.page_batch
    room = contents.host.memory.ahead_room()
    near: i64 = 0
    near_bytes: i64 = 0
    end: i64 = min(batch, ready.old_count)
    while near < end and near_bytes < room:
        entry = ready.at(near)
        if entry.form != ALPHA:
            break
        near_bytes += entry.content_bytes
        near += 1
    if near * 2 >= batch:
        return near - batch // 2
    if near_bytes * 2 >= room and near > 0:
        return near // 4 + 1
    is_in_delta = near == ready.old_count
    if is_in_delta and ready.delta.count == 0:
        return max(near, batch)
    next_bytes = (
        ready.delta.content_bytes // ready.delta.count
        if is_in_delta
        else ready.at(near).content_bytes
    )
    if near_bytes + next_bytes > room and (near > 0 or not is_wanted):
        return near // 4 + 1
    transit = contents.host.memory.transit
    if near == 0 and not transit.admits(contents, next_bytes):
        return 1
    load = ReadAhead(contents) if is_in_delta else HeadContents(contents)
    if near == 0 and next_bytes > LARGE_BYTES:
        load.transit_bytes = next_bytes
        transit.change(next_bytes)
    contents.loader.submit(load)
    return 0


def kept_count(contents: QueueContents) -> i64:
    """How many of the oldest messages paging leaves in memory for whoever wants the head."""
    if not contents.demand.is_there():
        return 0
    ready = contents.ready
    limit: i64 = 2 * contents.host.page_batch
    room = contents.host.memory.ahead_room()
    if ready.alpha_bytes <= room:
        return limit
    return _count_within(ready, min(limit, ready.old_count), room)


def _count_within(ready: VariableQueue, limit: i64, room: i64) -> i64:
    """The oldest entries, at most `limit`, in front of which less than `room` bytes of content are in memory."""
    count: i64 = 0
    size: i64 = 0
    while count < limit and size < room:
        entry = ready.at(count)
        if entry.form == ALPHA:
            size += entry.content_bytes
        count += 1
    return count
