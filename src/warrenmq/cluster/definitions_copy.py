"""This node's copy of the definitions of its cluster: queues, exchanges, vhosts, sinks and births.

The copy changes only with what the cluster has decided, in order, together with the broker. So what
it knows is what clients of this node can see, and the conditions of a proposal are made from it.
"""

from __future__ import annotations

from warrenmq.broker.definitions import metadata
from warrenmq.cluster.metadata.conditions import Absent, Alive, Condition, Exists, LastWritten
from warrenmq.routing.router import PREDECLARED

_PREDECLARED_NAMES = frozenset(name for name, _type, _internal in PREDECLARED)
_Name = tuple[bytes, bytes]


class DefinitionsCopy:
    """The queues, exchanges and sinks of a cluster, by vhost and name, that a node has followed."""

    def __init__(self) -> None:
        self.queues: dict[_Name, metadata.PutQueue] = {}
        self.exchanges: dict[_Name, metadata.PutExchange] = {}
        self.vhosts: dict[bytes, metadata.PutVhost] = {}
        self.sinks: dict[_Name, metadata.PutSink] = {}

    def load(self, definitions: metadata.Definitions) -> None:
        """Take over all definitions at a start."""
        changes: list[metadata.Change] = [
            *definitions.vhosts,
            *definitions.exchanges,
            *definitions.queues,
            *definitions.sinks,
        ]
        for change in changes:
            self.apply(change)

    def apply(self, change: metadata.Change) -> None:
        """Take over one decided change."""
        if isinstance(change, metadata.PutQueue):
            self.queues[change.vhost, change.name] = change
        elif isinstance(change, metadata.DeleteQueue):
            self.queues.pop((change.vhost, change.name), None)
        elif isinstance(change, metadata.PutExchange):
            self.exchanges[change.vhost, change.name] = change
        elif isinstance(change, metadata.DeleteExchange):
            self.exchanges.pop((change.vhost, change.name), None)
        elif isinstance(change, metadata.PutSink):
            self.sinks[change.vhost, change.name] = change
        elif isinstance(change, metadata.DeleteSink):
            self.sinks.pop((change.vhost, change.name), None)
        elif isinstance(change, metadata.PutVhost):
            self.vhosts[change.name] = change
        elif isinstance(change, metadata.DeleteVhost):
            self._forget_vhost(change.name)

    def prepare(self, changes: list[metadata.Change]) -> list[Condition] | None:
        """The conditions under which `changes` may be made; bindings get the births of their ends.

        None: an end of a binding is gone, so nothing may be made. The deletion of a queue holds for
        the group of it that this node knows. Other removals have no conditions: what is gone
        already needs no removal.
        """
        conditions: list[Condition] = []
        new_users = {change.name for change in changes if isinstance(change, metadata.PutUser)}
        for change in changes:
            if isinstance(change, (metadata.PutQueue, metadata.PutExchange)):
                conditions.append(Absent(change))
                self._expect_vhost(change.vhost, conditions)
            elif isinstance(change, metadata.DeleteQueue):
                # Only of a mirrored queue: its master may be another node by now.
                known = self.queues.get((change.vhost, change.name))
                if known is None:
                    return None
                conditions.append(LastWritten(known, known.revision))
            elif isinstance(change, metadata.PutBinding):
                if not self._expect_ends(change, conditions):
                    return None
            elif isinstance(change, (metadata.PutPermission, metadata.PutTopicPermission)):
                if change.user not in new_users:
                    conditions.append(Exists(metadata.PutUser(change.user, b"", "", [])))
                self._expect_vhost(change.vhost, conditions)
            elif isinstance(change, metadata.PutParameter) and change.vhost:
                self._expect_vhost(change.vhost, conditions)
        return conditions

    def removals(
        self, changes: list[metadata.Change]
    ) -> list[tuple[list[Condition], metadata.Change]]:
        """The removals among `changes` with their conditions.

        A queue, an exchange or a binding is removed only in the life that this node knows. Call it
        before the copy has changed.
        """
        found: list[tuple[list[Condition], metadata.Change]] = []
        for change in changes:
            known: list[metadata.PutQueue | metadata.PutExchange | None] = []
            if isinstance(change, metadata.DeleteQueue):
                known = [self.queues.get((change.vhost, change.name))]
            elif isinstance(change, metadata.DeleteExchange):
                known = [self.exchanges.get((change.vhost, change.name))]
            elif isinstance(change, metadata.DeleteBinding):
                known = list(self._ends_of(change))
            ends = [end for end in known if end is not None]
            if ends or isinstance(change, metadata.DeleteBinding):
                found.append(([Alive(end, end.birth) for end in ends], change))
        return found

    def _ends_of(
        self, binding: metadata.PutBinding | metadata.DeleteBinding
    ) -> tuple[
        metadata.PutQueue | metadata.PutExchange | None,
        metadata.PutQueue | metadata.PutExchange | None,
    ]:
        """Source and destination of a binding; None for one that is predeclared or gone."""
        place = (binding.vhost, binding.destination)
        return (
            self.exchanges.get((binding.vhost, binding.source)),
            self.queues.get(place) if binding.destination_is_queue else self.exchanges.get(place),
        )

    def _expect_ends(self, binding: metadata.PutBinding, conditions: list[Condition]) -> bool:
        """Add the conditions that both ends of `binding` live on; False if one is gone."""
        source, destination = self._ends_of(binding)
        if source is None and binding.source not in _PREDECLARED_NAMES:
            return False
        is_queue = binding.destination_is_queue
        if destination is None and (is_queue or binding.destination not in _PREDECLARED_NAMES):
            return False
        for end in (source, destination):
            if end is not None:
                conditions.append(Alive(end, end.birth))
            else:
                # A predeclared exchange lives as long as its vhost.
                self._expect_vhost(binding.vhost, conditions)
        binding.source_birth = metadata.NO_BIRTH if source is None else source.birth
        binding.destination_birth = metadata.NO_BIRTH if destination is None else destination.birth
        return True

    def _expect_vhost(self, name: bytes, conditions: list[Condition]) -> None:
        vhost = self.vhosts.get(name)
        if vhost is not None:
            conditions.append(Alive(vhost, vhost.birth))

    def _forget_vhost(self, name: bytes) -> None:
        self.vhosts.pop(name, None)
        for key in [key for key in self.queues if key[0] == name]:
            del self.queues[key]
        for key in [key for key in self.exchanges if key[0] == name]:
            del self.exchanges[key]
        for key in [key for key in self.sinks if key[0] == name]:
            del self.sinks[key]
