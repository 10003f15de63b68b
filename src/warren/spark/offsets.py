"""Offsets: how far a stream has read, as Spark stores it in its checkpoint.

    {"group": "g", "pos": {"%2F/orders#17": 1234}, "v": 1}

The key names vhost and queue (percent-encoded) and the queue's incarnation; the number is the seq id to read next.
Spark compares offsets as JSON *text*: another order of keys would be a new offset and spin empty batches for ever, so
an offset is always built with its keys sorted. The format stays readable: checkpoints outlive versions.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

OFFSET_VERSION: Final = 1
OffsetJson: TypeAlias = dict[str, object]


class OffsetError(ValueError):
    """A checkpoint's offset that this source cannot go on from."""


@dataclass(frozen=True)
class StreamPosition:
    """The next seq id to read, in one incarnation of the queue."""

    incarnation: int
    seq_id: int


@dataclass(frozen=True)
class OffsetFormat:
    """Offsets of one stream: group, vhost and queue are the stream's, and a foreign offset is refused."""

    group: str
    vhost: str
    queue: str

    def encode(self, position: StreamPosition) -> OffsetJson:
        """The canonical offset of `position`."""
        positions = {f"{self._queue_key}#{position.incarnation}": position.seq_id}
        return {"group": self.group, "pos": positions, "v": OFFSET_VERSION}

    def decode(self, offset: OffsetJson) -> StreamPosition:
        """OffsetError when the offset is another group's or queue's, or of another version."""
        if offset.get("v") != OFFSET_VERSION:
            raise OffsetError(
                f"the checkpoint's offset has version {offset.get('v')!r}, not {OFFSET_VERSION}"
            )
        if offset.get("group") != self.group:
            raise OffsetError(
                f"the checkpoint belongs to reader group '{offset.get('group')}', the query names '{self.group}'"
            )
        positions = offset.get("pos")
        if isinstance(positions, dict) and len(positions) == 1:
            key, seq_id = next(iter(positions.items()))
            queue_key, _, incarnation = str(key).rpartition("#")
            if incarnation.isascii() and incarnation.isdigit() and type(seq_id) is int and seq_id >= 0:
                if queue_key != self._queue_key:
                    raise OffsetError(
                        f"the checkpoint belongs to queue '{queue_key}', the query names '{self._queue_key}'"
                    )
                return StreamPosition(int(incarnation), seq_id)
        raise OffsetError(f"the checkpoint's offset {offset!r} is not one of this source")

    @property
    def _queue_key(self) -> str:
        return f"{quote(self.vhost, safe='')}/{quote(self.queue, safe='')}"
