"""The plan by which several writers write a store side by side, and the manifest of each part.

A *part* is a range of one queue's seq ids that begins and ends with a segment of its index, or a
number of contents that several queues share. A part has content ids and content file numbers of its
own, so parts need not know of each other. Plans and manifests are small and go through JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from warrenmq.store.contents.store import FILE_SIZE_LIMIT
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES

PLAN_FORMAT: Final = 1
# The default of a node (`queue_index_embed_msgs_below`).
EMBED_BELOW_BYTES: Final = 4096


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of all writers of a store. Sizes in bytes; `segment_entries` in seq ids.

    A node requires SEGMENT_ENTRIES seq ids a segment. Transient messages are left out. With
    `keep_transient` they are kept as messages that outlive a restart; their properties stay as the
    publisher set them.
    """

    keep_transient: bool = False
    embed_below: int = EMBED_BELOW_BYTES
    content_file_size_limit: int = FILE_SIZE_LIMIT
    segment_entries: int = SEGMENT_ENTRIES


class QueueExtent(msgspec.Struct, frozen=True, kw_only=True):
    """The range of a queue's seq ids, [first_seq, end_seq); `end_seq` may be too high.

    `next_seq` is the seq id of the next message published later; 0: the one behind the last message
    written. Messages at or below `delivered_upto` are delivered with the redelivered flag.
    """

    vhost_id: int
    queue_id: int
    end_seq: int
    first_seq: int = 1
    next_seq: int = 0
    delivered_upto: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One writer's share: messages of `queue_id` in [first_seq, end_seq), or shared contents.

    A part of shared contents has queue id 0. The part may add as many contents as there are ids in
    [first_content_id, end_content_id). It is part `number` of `count` of its vhost.
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
        """The part's name, unique in the plan; used in file names."""
        return f"{self.vhost_id}-{self.number}"


class PartManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a finished part. `directory` is its name below the unfinished store's parts."""

    part: Part
    directory: str
    messages: int
    message_bytes: int
    skipped_transient: int
    # The seq id behind the part's last message; 0: it has no message.
    next_seq: int
    contents: int
    # The number of references that the part's shared contents wait for, and the sum of their
    # content ids, once for each reference. Over all parts of a vhost, these two must equal the next
    # two.
    shared_references: int
    shared_id_sum: int
    # The number of the part's references to shared contents, and the sum of their content ids.
    used_references: int
    used_id_sum: int


class StorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the writers of a store must agree on."""

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

    `shared_contents` has by vhost id the highest number of contents that go to several queues.
    Raises ValueError when `queues` contradict themselves.
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
