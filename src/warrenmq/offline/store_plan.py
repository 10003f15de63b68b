"""How a store is divided for those who write it side by side, and what each of them reports.

A *part* is a range of one queue's seq ids that begins and ends with a segment of its index, or a number of contents that
several queues share. A part has the ids of its contents and the numbers of its content files to itself, so parts need
not know of each other. All of this is small and goes through JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from warrenmq.store.content_store import FILE_SIZE_LIMIT
from warrenmq.store.queue_index import SEGMENT_ENTRIES

PLAN_FORMAT: Final = 1
# What a node has by default (`queue_index_embed_msgs_below`).
EMBED_BELOW_BYTES: Final = 4096


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, but for the seq ids of a segment, which a node wants to be SEGMENT_ENTRIES.

    Transient messages are left out, or with `keep_transient` kept as messages that outlive a restart; their properties
    still say what their publisher said.
    """

    keep_transient: bool = False
    embed_below: int = EMBED_BELOW_BYTES
    content_file_size_limit: int = FILE_SIZE_LIMIT
    segment_entries: int = SEGMENT_ENTRIES


class QueueExtent(msgspec.Struct, frozen=True, kw_only=True):
    """The seq ids that a queue's messages may have: [first_seq, end_seq), an upper bound will do.

    `next_seq` is the one of the first message after them; 0: behind the last that was written. What is at or below
    `delivered_upto` is delivered as redelivered.
    """

    vhost_id: int
    queue_id: int
    end_seq: int
    first_seq: int = 1
    next_seq: int = 0
    delivered_upto: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one writer writes: messages of `queue_id` in [first_seq, end_seq), or for queue id 0 shared contents.

    It may add as many contents as ids in [first_content_id, end_content_id). It is part `number` of `count` of its vhost.
    """

    vhost_id: int
    number: int
    count: int
    queue_id: int
    first_seq: int
    end_seq: int
    first_content_id: int
    end_content_id: int

    @property
    def name(self) -> str:
        """Unique in the plan; part of a file name."""
        return f"{self.vhost_id}-{self.number}"


class PartManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a part turned out to be. `directory` is its place in the unfinished store; bytes are those of messages."""

    part: Part
    directory: str
    messages: int
    message_bytes: int
    skipped_transient: int
    # Behind the seq id of its last message; 0: it has none.
    next_seq: int
    contents: int
    # How many references its shared contents wait for, and how many references to such contents it has; and the sums
    # of their ids, once for each reference. Over all parts the pairs must be equal.
    shared_references: int
    shared_id_sum: int
    used_references: int
    used_id_sum: int


class StorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that those who write a store must agree on."""

    format: int
    settings: WriterSettings
    queues: list[QueueExtent]
    parts: list[Part]


def plan_parts(
    queues: Sequence[QueueExtent],
    shared_contents: Mapping[int, int],
    settings: WriterSettings,
    part_messages: int = 0,
) -> list[Part]:
    """Divide queues into parts of about `part_messages` seq ids (0: a queue is one part).

    `shared_contents` says by vhost id how many contents go to several queues, at most. Raises ValueError.
    """
    _check_extents(queues)
    step = 0
    if part_messages > 0:
        step = max(part_messages // settings.segment_entries, 1) * settings.segment_entries
    # (vhost id, queue id, first seq, end seq, contents)
    pieces: list[tuple[int, int, int, int, int]] = []
    for vhost_id, contents in shared_contents.items():
        size = part_messages or contents
        pieces += [
            (vhost_id, 0, 0, 0, min(size, contents - first))
            for first in range(0, contents, size or 1)
        ]
    for queue in queues:
        first = queue.first_seq
        while first < queue.end_seq:
            end = min(queue.end_seq, (first // step + 1) * step) if step else queue.end_seq
            pieces.append((queue.vhost_id, queue.queue_id, first, end, end - first))
            first = end
    counts: dict[int, int] = {}
    for vhost_id, *_ in pieces:
        counts[vhost_id] = counts.get(vhost_id, 0) + 1
    numbers = dict.fromkeys(counts, 0)
    content_ids = dict.fromkeys(counts, 1)
    parts: list[Part] = []
    for vhost_id, queue_id, first, end, contents in pieces:
        part = Part(
            vhost_id=vhost_id,
            number=numbers[vhost_id],
            count=counts[vhost_id],
            queue_id=queue_id,
            first_seq=first,
            end_seq=end,
            first_content_id=content_ids[vhost_id],
            end_content_id=content_ids[vhost_id] + contents,
        )
        parts.append(part)
        numbers[vhost_id] += 1
        content_ids[vhost_id] = part.end_content_id
    return parts


def _check_extents(queues: Sequence[QueueExtent]) -> None:
    seen: set[tuple[int, int]] = set()
    for queue in queues:
        key = (queue.vhost_id, queue.queue_id)
        if key in seen:
            raise ValueError(
                f"queue id {queue.queue_id} of vhost id {queue.vhost_id} is planned twice"
            )
        seen.add(key)
        if queue.first_seq < 1 or queue.end_seq < queue.first_seq or queue.end_seq > 1 << 62:
            raise ValueError(
                f"queue id {queue.queue_id}: no seq ids lie in [{queue.first_seq}, {queue.end_seq})"
            )
