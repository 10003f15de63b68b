"""How a queue is to be mirrored, from its policy and its arguments (M26-M30).

A policy's values were checked when it was set (`broker/policies/mirroring.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from warrenmq.broker.policies import mirroring
from warrenmq.queues.arguments import QUORUM
from warrenmq.wire.field_table import decode_table

# Values of `MirrorPolicy.mode`.
NO_MIRRORS: Final = ""
ALL: Final = "all"
EXACTLY: Final = "exactly"
NODES: Final = "nodes"

_ALWAYS: Final = "always"

# Messages of one step of a synchronisation.
_SYNC_BATCH_SIZE: Final = 4096
# Copies of a queue that is declared as a quorum queue, unless it or its policy says otherwise.
QUORUM_COPIES: Final = 3
_QUORUM_COPIES_ARGUMENT: Final = "x-quorum-initial-group-size"


@dataclass(frozen=True)
class MirrorPolicy:
    """The settings of a queue's mirroring; equal ones ask for the same.

    `copies`: how many there are with EXACTLY, the master's included. `nodes`: those that have one
    with NODES. `is_automatic`: a new mirror is synchronised by itself. `promotes_unsynced_on_...`:
    a mirror that is not in sync may become master; unlike in RabbitMQ never by default. A publish
    is refused while fewer than `min_sync` copies are in sync.
    """

    mode: str = NO_MIRRORS
    copies: int = 1
    nodes: frozenset[bytes] = frozenset()
    is_automatic: bool = False
    sync_batch_size: int = _SYNC_BATCH_SIZE
    promotes_unsynced_on_failure: bool = False
    promotes_unsynced_on_shutdown: bool = False
    min_sync: int = 1

    @property
    def is_mirrored(self) -> bool:
        """Whether the queue has a group, even if no node but its own can have a copy now."""
        return self.mode != NO_MIRRORS


UNMIRRORED: Final = MirrorPolicy()


def mirror_policy(
    definition: Mapping[str, object] | None, arguments: bytes, is_exclusive: bool
) -> MirrorPolicy:
    """The policy of a queue that is declared with `arguments` (table body).

    `definition`: the settings that its policies give together (`AppliedPolicies.mirroring`), None
    without any. A queue that is declared as a quorum queue is mirrored without a policy, and its
    mirrors are synchronised by themselves. An exclusive queue is never mirrored: it ends with its
    connection.
    """
    if is_exclusive:
        return UNMIRRORED
    if definition is not None and mirroring.MODE in definition:
        return _defined(definition)
    copies = _quorum_copies(arguments)
    if copies > 0:
        return MirrorPolicy(EXACTLY, copies, is_automatic=True)
    return UNMIRRORED


def _defined(definition: Mapping[str, object]) -> MirrorPolicy:
    mode = str(definition[mirroring.MODE])
    parameters = definition.get(mirroring.PARAMS)
    return MirrorPolicy(
        mode=mode,
        copies=_number(parameters, 1) if mode == EXACTLY else 1,
        nodes=_names(parameters) if mode == NODES else frozenset(),
        is_automatic=definition.get(mirroring.SYNC_MODE) == mirroring.AUTOMATIC,
        sync_batch_size=_number(definition.get(mirroring.SYNC_BATCH_SIZE), _SYNC_BATCH_SIZE),
        promotes_unsynced_on_failure=definition.get(mirroring.PROMOTE_ON_FAILURE) == _ALWAYS,
        promotes_unsynced_on_shutdown=definition.get(mirroring.PROMOTE_ON_SHUTDOWN) == _ALWAYS,
        min_sync=_number(definition.get(mirroring.MIN_SYNC), 1),
    )


def _quorum_copies(arguments: bytes) -> int:
    """The copies that a quorum queue asks for, 0 for a queue of another type."""
    table = decode_table(arguments) if arguments else {}
    type = table.get("x-queue-type")
    if type is None or type.value != QUORUM.encode():
        return 0
    copies = table.get(_QUORUM_COPIES_ARGUMENT)
    return QUORUM_COPIES if copies is None else _number(copies.value, QUORUM_COPIES)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _names(value: object) -> frozenset[bytes]:
    assert isinstance(value, list)
    return frozenset(str(name).encode() for name in value)
