"""Chooses the node for a new queue (RabbitMQ's queue master location), and its first mirrors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group import encode_group
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import first_nodes, rank_of
from warrenmq.cluster.groups.queue_policy import policy_of
from warrenmq.cluster.groups.transitions import create
from warrenmq.queues.mirror.ring_feed import epoch_start
from warrenmq.wire.field_table import decode_table

CLIENT_LOCAL = "client-local"
MIN_MASTERS = "min-masters"
RANDOM = "random"
# Arguments that name a locator, of classic and of quorum queues.
_ARGUMENTS = ("x-queue-master-locator", "x-queue-leader-locator")
_POLICY_KEYS = ("queue-master-locator", "queue-leader-locator")
# The names that quorum queues have for the same.
_SYNONYMS = {"balanced": MIN_MASTERS, "least-leaders": MIN_MASTERS}


class Placement:
    """Places queues for clients of the node `name`.

    `default`: the locator for queues whose arguments and policy name none. `placeable` returns the
    names of the nodes that can take a queue. Nodes in maintenance are not among them. `mirrors`:
    the nodes on which new queues can have mirrors; None: no queue gets any.
    """

    def __init__(
        self,
        name: bytes,
        broker: Broker,
        copy: DefinitionsCopy,
        placeable: Callable[[], list[bytes]],
        default: str,
        draw: Callable[[list[bytes]], bytes] = random.choice,
        mirrors: KnownNodes | None = None,
    ) -> None:
        self._name = name
        self._broker = broker
        self._copy = copy
        self._placeable = placeable
        self._default = default
        self._draw = draw
        self._mirrors = mirrors

    def place(self, queue: PutQueue) -> None:
        """Give the new `queue` its node, and its first group if a policy mirrors it (M20).

        All its copies are in sync, as they are empty.
        """
        queue.node = self.choose(queue)
        queue.group = b""
        vhost = self._broker.vhosts.get(queue.vhost)
        if self._mirrors is None or vhost is None:
            return
        policy = policy_of(vhost, queue)
        if not policy.is_mirrored:
            return
        rank = rank_of(queue.vhost, queue.name)
        nodes = first_nodes(policy, queue.node, self._mirrors.by_name, rank)
        # A node that is not known to run gets its copy later.
        copies = [copy for copy in map(self._mirrors.copy_of, nodes) if copy is not None]
        if copies:
            queue.node = copies[0].node
            queue.group = encode_group(create(copies[0], copies[1:], int(epoch_start(1, 0))))

    def choose(self, queue: PutQueue) -> bytes:
        """The node for `queue`; an exclusive queue lives with its connection.

        While this node is in maintenance, the queues of its last clients go to other nodes; when
        all nodes are, they stay here.
        """
        nodes = sorted(self._placeable())
        if queue.is_exclusive or not nodes:
            return self._name
        locator = self._locator(queue)
        if locator == CLIENT_LOCAL and self._name in nodes:
            return self._name
        if locator == RANDOM:
            return self._draw(nodes)
        counts = Counter(known.node for known in self._copy.queues.values())
        return min(nodes, key=lambda node: (counts[node], node != self._name, node))

    def _locator(self, queue: PutQueue) -> str:
        found: object = None
        arguments = decode_table(queue.arguments)
        for key in _ARGUMENTS:
            if key in arguments:
                found = arguments[key].value
        vhost = self._broker.vhosts.get(queue.vhost)
        if found is None and vhost is not None:
            policies = vhost.policies.of_name(queue.name)
            if policies is not None:
                found = next(
                    (
                        policies.definition[key]
                        for key in _POLICY_KEYS
                        if key in policies.definition
                    ),
                    None,
                )
        name = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
        locator = _SYNONYMS.get(str(name), str(name))
        known = (CLIENT_LOCAL, MIN_MASTERS, RANDOM)
        return locator if locator in known else self._default
