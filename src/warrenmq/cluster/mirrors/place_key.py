"""The number by which the nodes of a cluster call a mirrored queue in their records."""

from __future__ import annotations

import hashlib
from typing import Final

from warrenmq.broker.definitions.metadata import PutQueue

_KEY_BYTES: Final = 8


def place_key(put: PutQueue) -> int:
    """The number by which replicas name a queue to each other, in one of its lives.

    Queues that were made in one transaction have the same birth.
    """
    name = b"".join(
        (
            len(put.vhost).to_bytes(),
            put.vhost,
            len(put.name).to_bytes(),
            put.name,
            b"%d" % put.birth,
        )
    )
    return int.from_bytes(hashlib.blake2b(name, digest_size=_KEY_BYTES).digest()) >> 1
