"""The figures of reader groups, queue by queue, as samples have them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.names import name_text

_FIGURES = struct.Struct(">3q")


def group_figures(vhost: Vhost, now_ms: int) -> Iterator[tuple[str, str, bytes]]:
    """Group, queue and packed figures of each part of a reader group in a queue of this node.

    The age of a message that only the disk knows is -1. It is read then, for the next call.
    """
    for group in vhost.readers.groups.shown():
        for member in group.ordered():
            if member.queue is None:
                continue
            lag, age_ms = member.lag(), 0
            if lag > 0:
                since_ms = member.lag_since_ms()
                age_ms = max(0, now_ms - since_ms) if since_ms >= 0 else -1
                if since_ms < 0:
                    member.find_oldest(_ignore)
            figures = _FIGURES.pack(len(member.reserved_entries), lag, age_ms)
            yield name_text(group.name), name_text(member.queue_name), figures


def _ignore() -> None:
    pass
