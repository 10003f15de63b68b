"""Values of columns about the copies of a queue; None for a queue that is not mirrored (M33)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warrenmq.broker.mirrors import MirrorFacts

SYNCING: Final = "syncing"


def sync_messages(facts: MirrorFacts) -> int | None:
    """How many messages a synchronisation has copied to the mirror that is the furthest behind.

    None without a synchronisation.
    """
    running = [copy.sync for copy in facts.mirrors if copy.sync is not None]
    return min([progress.messages for progress in running], default=None)


def state_of(facts: MirrorFacts) -> str | list[Any]:
    """The state of a mirrored queue; while it is synchronised, also the number of messages."""
    if facts.is_down:
        return "down"
    messages = sync_messages(facts)
    return "running" if messages is None else [SYNCING, messages]


def members_of(facts: MirrorFacts) -> list[str]:
    """The nodes with a living copy: the master's, then those of mirrors, oldest first."""
    mirrors = [copy.node for copy in facts.mirrors]
    return mirrors if facts.is_down else [facts.master, *mirrors]


def online_of(facts: MirrorFacts) -> list[str]:
    """The nodes among `members_of` that this node reaches."""
    mirrors = [copy.node for copy in facts.mirrors if copy.is_online]
    return mirrors if facts.is_down else [facts.master, *mirrors]


def synchronised_nodes(facts: MirrorFacts) -> list[str]:
    """The nodes of synchronised mirrors, oldest first."""
    return [copy.node for copy in facts.mirrors if copy.is_synced]


# Columns that RabbitMQ has for classic queues alone; quorum queues are mirrored, too.
MIRROR_COLUMNS: Final[dict[str, Callable[[MirrorFacts], Any]]] = {
    "recoverable_slaves": lambda facts: list(facts.recoverable),
    "slave_nodes": lambda facts: [copy.node for copy in facts.mirrors],
    "slave_pids": lambda facts: [copy.pid for copy in facts.mirrors],
    "synchronised_slave_nodes": synchronised_nodes,
    "synchronised_slave_pids": lambda facts: [copy.pid for copy in facts.mirrors if copy.is_synced],
}
# Columns that RabbitMQ has for quorum queues alone, or does not have.
COPY_COLUMNS: Final[dict[str, Callable[[MirrorFacts], Any]]] = {
    "leader": lambda facts: facts.master,
    "members": members_of,
    "online": online_of,
    "reason": lambda facts: facts.reason,
    "state": state_of,
}
