"""Reading ahead: how much a queue loads before its consumers ask, and keeps in memory for them.

Reading ahead is for consumers that take messages at once: the disk works while they do. A consumer
that does not ack, or does not read its socket, takes nothing for hours, and messages read for it
fill the memory meanwhile. A queue therefore reads ahead

- half of `page_batch` messages at most;
- half of its room in bytes at most (`MemoryAccount.ahead_room`): less room for more active queues;
- a message that is larger than its room only when a consumer can take it at once.

While a queue has consumers, paging keeps in memory the oldest messages that fit into its room, and
one more. The kept room is twice what is read ahead, or the next slice of paging would undo a load.

No message waits for ever (`tests/queues/test_liveness.py`). While a queue has ready messages, every
consumer or reader that waits for one is in a place where it will be woken. Consumers are in the
queue's circle, and readers among those that wait for its head, only while

- a load of this queue is under way: its end asks for a turn (`TurnShare.on_arrival`), empty or not;
- or that turn is asked for already;
- or the queue waits for room (`Transit.waiting`): more room asks for the turn.

Otherwise the circle is empty: a consumer that can take a message has got it, and one that cannot
was sent to wait for the room it lacks, where settling, or writing to the socket, wakes it. A queue
must therefore not conclude from `can_take` that no consumer wants the head while it leaves the
asked consumers in the circle.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.backing.contents import QueueContents
from warrenmq.queues.backing.loading import HeadContents, ReadAhead
from warrenmq.queues.backing.variable_queue import LOADING, VariableQueue
from warrenmq.queues.entry import ALPHA
from warrenmq.queues.memory.transit import LARGE_BYTES


def want_head(contents: QueueContents) -> None:
    """Load the head, for which a client or reader waits, unless it is in memory already."""
    if contents.ready.head_state() != LOADING:
        if not contents.demand.awaits_older and not contents.demand.is_shut:
            contents.on_arrival()
    elif contents.loader.current is None:
        read_ahead_of_consumers(contents, True)
    else:
        contents.loader.is_head_wanted = True


def keep_ahead(contents: QueueContents, fetched: i64) -> None:
    """Load messages before consumers want them; called after `fetched` messages were taken."""
    contents.loader.fetches_until_read_ahead -= fetched
    is_away = contents.ready.head_state() == LOADING
    if contents.loader.current is None and (
        contents.loader.fetches_until_read_ahead <= 0 or is_away
    ):
        contents.loader.fetches_until_read_ahead = read_ahead_of_consumers(
            contents, is_away and contents.demand.circle.has_ready()
        )


def read_ahead_of_consumers(contents: QueueContents, is_wanted: bool) -> i64:
    """Load the next messages for consumers, unless enough are in memory.

    Returns the number of fetches after which to check again. `is_wanted`: a consumer takes the head
    as soon as it is in memory, whatever its size.
    """
    ready = contents.ready
    batch = contents.host.page_batch
    room = contents.host.memory.ahead_room()
    near: i64 = 0
    near_bytes: i64 = 0
    end: i64 = min(batch, ready.old_count)
    if ready.old_count == ready.entry_count == ready.ram_count and ready.alpha_bytes < room:
        # These are all that is in memory, contents as well, so the account has their bytes.
        near = end
        near_bytes = ready.alpha_bytes
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
    load = ReadAhead(contents, _go_on) if is_in_delta else HeadContents(contents, _go_on)
    if near == 0 and next_bytes > LARGE_BYTES:
        load.transit_bytes = next_bytes
        transit.change(next_bytes)
    contents.loader.submit(load)
    return 0


def _go_on(contents: QueueContents) -> None:
    """Begin the next load before the messages of the last one are delivered.

    The disk works meanwhile, and the queue does not wait for it between any two deliveries.
    """
    ready = contents.ready
    if ready.count > ready.ram_count and len(contents.demand.consumers) > 0:
        keep_ahead(contents, 0)


def kept_count(contents: QueueContents) -> i64:
    """The number of oldest messages that paging leaves in memory for the queue's demand."""
    if not contents.demand.exists():
        return 0
    ready = contents.ready
    limit: i64 = 2 * contents.host.page_batch
    room = contents.host.memory.ahead_room()
    if ready.alpha_bytes <= room:
        return limit
    return _count_within(ready, min(limit, ready.old_count), room)


def deep_count(contents: QueueContents) -> i64:
    """The number of oldest messages that a deep queue keeps: half of its room at the mean size."""
    ready = contents.ready
    room = contents.host.memory.deep_room() // 2
    return room * ready.ram_count // max(ready.alpha_bytes, 1)


def _count_within(ready: VariableQueue, limit: i64, room: i64) -> i64:
    """The number of oldest entries, at most `limit`, with less than `room` bytes before them."""
    count: i64 = 0
    size: i64 = 0
    while count < limit and size < room:
        entry = ready.at(count)
        if entry.form == ALPHA:
            size += entry.content_bytes
        count += 1
    return count
