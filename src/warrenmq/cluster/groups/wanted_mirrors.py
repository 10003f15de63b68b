"""Finds the queues of this node whose groups are not what their policies want.

The node of a queue's master takes the steps, one after the other; each is a change of the group,
which leads here again. When a policy or the nodes of the cluster change, all queues are looked at,
some in each turn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import MetadataDamaged, PutQueue
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import (
    AddMirror,
    DropCopy,
    MoveMaster,
    next_step,
    rank_of,
)
from warrenmq.cluster.groups.queue_policy import policy_of
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import AmqpError

logger = logging.getLogger("warren.cluster")


@dataclass(frozen=True)
class BeginGroup:
    """Give a queue that is to be mirrored a group, with the copy of this node alone."""


@dataclass(frozen=True)
class EndGroup:
    """Take away the group of a queue that is to be mirrored no more and has no other copy."""


WantedStep = AddMirror | DropCopy | MoveMaster | BeginGroup | EndGroup


class WantedMirrors:
    """Looks at the queues of `copy` whose master is on the node `name`; `nodes` may have copies."""

    def __init__(
        self, name: bytes, broker: Broker, copy: DefinitionsCopy, nodes: KnownNodes
    ) -> None:
        self._name = name
        self._broker = broker
        self._copy = copy
        self._nodes = nodes
        # Queues to look at, in order, by vhost and name.
        self._pending: dict[tuple[bytes, bytes], None] = {}

    def of_queue(self, put: PutQueue) -> WantedStep | None:
        """The next step for a queue; None: there is none, or it is not for this node to take.

        Raises MetadataDamaged for a group that cannot be read, AmqpError for arguments.
        """
        vhost = self._broker.vhosts.get(put.vhost)
        if vhost is None or put.node != self._name:
            return None
        policy = policy_of(vhost, put)
        group = group_of(put)
        if group is None:
            return BeginGroup() if policy.is_mirrored else None
        step = next_step(policy, group, self._nodes.by_name, rank_of(put.vhost, put.name))
        if step is not None or policy.is_mirrored or group.is_down:
            return step
        return EndGroup() if group.recoverable == (self._name,) else None

    def look_at(self, vhost: bytes, name: bytes) -> None:
        """Look at a queue whose group has changed, or that can take a step again."""
        self._pending[vhost, name] = None

    def look_again(self, vhost: bytes | None = None) -> None:
        """Look at all queues, of one vhost or of all: a policy or a node has changed."""
        for place, put in self._copy.queues.items():
            if put.node == self._name and vhost in (None, put.vhost):
                self._pending[place] = None

    @property
    def has_more(self) -> bool:
        """Whether there are queues to look at."""
        return bool(self._pending)

    def advance(self, limit: int = 64) -> list[tuple[PutQueue, WantedStep]]:
        """Look at up to `limit` queues; returns those that need a step, with their definitions."""
        found: list[tuple[PutQueue, WantedStep]] = []
        for place in list(islice(self._pending, limit)):
            del self._pending[place]
            put = self._copy.queues.get(place)
            if put is None:
                continue
            try:
                step = self.of_queue(put)
            except (MetadataDamaged, AmqpError) as error:
                logger.error("queue '%s' keeps its mirrors: %s", name_text(put.name), error)
                continue
            if step is not None:
                found.append((put, step))
        return found
