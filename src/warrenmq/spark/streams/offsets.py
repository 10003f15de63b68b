"""Offsets: how far a stream has read, in the form that Spark stores in its checkpoint.

    {"group": "g", "pos": {"%2F/orders#17": 1234, "%2F/returns#18": 77}, "v": 1}

A key names vhost and queue (percent-encoded) and the queue's incarnation; the number is the seq id
to read next. A queue of a cluster has a key such as `%2F/orders#b40`, with its birth in the
cluster, which is the same on every node that may become its home.

Before, such a key had the queue's number on its node, and the id of the node's data directory:
`%2F/orders#17@0f3c...`. A checkpoint may have such keys, and those from before the node came into a
cluster.

Each offset has all queues of the stream. Spark compares offsets as JSON *text*: another order of
keys would count as a new offset and run empty batches for ever, so keys are always sorted. Later
versions must read this format, because checkpoints outlive versions.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

OFFSET_VERSION: Final = 1
_ERRORS: Final = "surrogateescape"
# A queue's birth, or its id and home.
_INCARNATION: Final = re.compile(r"(b?)([0-9]{1,18})(?:@([0-9A-Za-z._-]{1,64}))?")
_POSITION_MAX: Final = 1 << 62
OffsetJson: TypeAlias = dict[str, object]


class OffsetError(ValueError):
    """The source cannot resume from the offset of a checkpoint."""


@dataclass(frozen=True, order=True)
class QueueKey:
    """One incarnation of a queue. `name` has bytes that are not UTF-8 as surrogates.

    `is_birth`: the incarnation is the birth of the queue in a cluster, otherwise its id on the node
    `home`, or on a node that runs alone (""), as it may have done when the key was written.
    """

    name: str
    incarnation: int
    home: str = ""
    is_birth: bool = False

    def __str__(self) -> str:
        return f"'{self.shown}' (incarnation {self.incarnation})"

    @property
    def queue(self) -> bytes:
        """The name as the broker has it."""
        return self.name.encode("utf-8", _ERRORS)

    @property
    def shown(self) -> str:
        """The name for people and columns: bytes that are not UTF-8 are replaced."""
        return self.name.encode("utf-8", _ERRORS).decode("utf-8", "replace")


# The seq id to read next in each queue.
Positions: TypeAlias = Mapping[QueueKey, int]


@dataclass(frozen=True)
class OffsetFormat:
    """Encodes and decodes the offsets of one stream; refuses those of another group or vhost."""

    group: str
    vhost: str

    def encode(self, positions: Positions) -> OffsetJson:
        """The canonical offset of `positions`."""
        keys = {self._text(key): seq for key, seq in positions.items()}
        return {"group": self.group, "pos": dict(sorted(keys.items())), "v": OFFSET_VERSION}

    def decode(self, offset: OffsetJson) -> dict[QueueKey, int]:
        """The positions in `offset`.

        Raises OffsetError for an offset of another source, group, vhost or format version.
        """
        if not {"group", "v"} <= offset.keys():
            raise OffsetError(f"the checkpoint's offset {offset!r} is not one of this source")
        if offset["v"] != OFFSET_VERSION:
            raise OffsetError(
                f"the checkpoint's offset has version {offset['v']!r}, not {OFFSET_VERSION}"
            )
        if offset["group"] != self.group:
            raise OffsetError(
                f"the checkpoint belongs to reader group '{offset['group']}', the query names '{self.group}'"
            )
        positions = offset.get("pos")
        if not isinstance(positions, dict):
            raise OffsetError(f"the checkpoint's offset {offset!r} is not one of this source")
        found = {}
        for text, seq in positions.items():
            queue, _, incarnation = str(text).rpartition("#")
            vhost, slash, name = queue.partition("/")
            life = _INCARNATION.fullmatch(incarnation)
            if not slash or life is None or type(seq) is not int or not 0 <= seq <= _POSITION_MAX:
                raise OffsetError(f"the checkpoint's offset {offset!r} is not one of this source")
            if unquote(vhost) != self.vhost:
                raise OffsetError(
                    f"the checkpoint belongs to vhost '{unquote(vhost)}', the query names '{self.vhost}'"
                )
            is_birth, number, home = life[1] == "b", int(life[2]), life[3] or ""
            found[QueueKey(unquote(name, errors=_ERRORS), number, home, is_birth)] = seq
        return found

    def _text(self, key: QueueKey) -> str:
        queue = f"{quote(self.vhost, safe='')}/{quote(key.name, safe='', errors=_ERRORS)}"
        life = f"{'b' if key.is_birth else ''}{key.incarnation}"
        return f"{queue}#{life}@{key.home}" if key.home else f"{queue}#{life}"


def queue_key(name: bytes, incarnation: int, home: str = "", birth: int = 0) -> QueueKey:
    """The key of a queue: from its birth if it has one, else from its incarnation at `home`."""
    text = name.decode("utf-8", _ERRORS)
    if birth:
        return QueueKey(text, birth, is_birth=True)
    return QueueKey(text, incarnation, home)
