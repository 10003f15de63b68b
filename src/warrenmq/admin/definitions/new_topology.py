"""The exchanges, queues and bindings of a document that a broker lacks.

What exists stays as it is, even if the document has it with other attributes, as in RabbitMQ.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.definitions.conversion import (
    LeftOut,
    binding_of,
    binding_text,
    exchange_of,
    queue_of,
)
from warrenmq.admin.definitions.document import SLICE_ROWS, Document
from warrenmq.admin.definitions.json_values import bytes_of, json_of
from warrenmq.admin.definitions.row_faults import in_row
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.limits import is_reached
from warrenmq.broker.definitions.metadata import PutBinding, PutExchange, PutQueue
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.routing.binding_arguments import canonical_arguments
from warrenmq.routing.equivalence import resource_text
from warrenmq.routing.exchange import Exchange, binding_identity
from warrenmq.routing.exchange_types import make_exchange
from warrenmq.routing.router import PREDECLARED
from warrenmq.vocabulary.error_codes import PRECONDITION
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import AmqpError


@dataclass
class NewTopology:
    """The declarations that are to be made in one vhost, in this order."""

    # Exchanges are durable or not, so they are no definitions to store yet.
    exchanges: list[tuple[PutExchange, bool]] = field(default_factory=list)
    queues: list[PutQueue] = field(default_factory=list)
    bindings: list[PutBinding] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.exchanges) + len(self.queues) + len(self.bindings)


class TopologyPlanning:
    """Finds what `document` has and `broker` lacks.

    `vhost_of` names the vhost of a row; it may be one that the import will create.
    """

    def __init__(self, broker: Broker, document: Document, vhost_of: Callable[[Any], str]) -> None:
        self.vhosts: dict[bytes, NewTopology] = {}
        # Lines for people: a line for each declaration, and one for each part that is left out.
        self.lines: list[str] = []
        self.left_out: list[str] = []
        self._broker = broker
        self._document = document
        self._vhost_of = vhost_of
        # Exchanges that will be declared; they are made here to check bindings from them.
        self._exchanges: dict[tuple[bytes, bytes], Exchange] = {}
        self._queues: set[tuple[bytes, bytes]] = set()
        self._bindings: set[tuple[bytes, bytes, bool, bytes, bytes, bytes]] = set()
        # Arguments of existing bindings that have some, by exchange, then by what they bind.
        self._arguments: dict[Exchange, dict[tuple[bool, bytes, bytes], list[bytes]]] = {}

    def steps(self) -> Iterator[tuple[int, int]]:
        """Do the work in short steps: rows done so far, and of all.

        Raises DefinitionsError, Refusal when a vhost would have more queues than it may have, and
        as `vhost_of`.
        """
        document = self._document
        sections: list[tuple[str, Callable[[Any, str], None], Sequence[Any]]] = [
            ("exchanges", self._exchange, document.exchanges),
            ("queues", self._queue, document.queues),
            ("bindings", self._binding, document.bindings),
        ]
        total = sum(len(rows) for _, _, rows in sections)
        done = 0
        for section, plan, rows in sections:
            for number, row in enumerate(rows):
                try:
                    with in_row(section, number):
                        plan(row, self._vhost_of(row))
                except LeftOut as reason:
                    self.left_out.append(str(reason))
                done += 1
                if done % SLICE_ROWS == 0:
                    yield done, total
        for name, topology in self.vhosts.items():
            vhost = self._broker.vhosts.get(name)
            if vhost is not None:
                _check_limit(vhost, len(topology.queues))

    def _of(self, vhost: bytes) -> NewTopology:
        return self.vhosts.setdefault(vhost, NewTopology())

    def _exchange(self, row: Any, vhost_name: str) -> None:
        name, vhost = bytes_of(row.name), bytes_of(vhost_name)
        if self._find_exchange(vhost, name) is not None:
            return
        exchange = exchange_of(row, vhost_name, self.left_out)
        self._exchanges[vhost, name] = make_exchange(
            name,
            exchange.type,
            row.durable,
            exchange.auto_delete,
            exchange.internal,
            exchange.arguments,
        )
        self._of(vhost).exchanges.append((exchange, row.durable))
        self.lines.append(f"create {resource_text('exchange', name, vhost)}")

    def _queue(self, row: Any, vhost_name: str) -> None:
        name, vhost = bytes_of(row.name), bytes_of(vhost_name)
        queue = queue_of(row, vhost_name, 0, self.left_out)
        known = self._broker.vhosts.get(vhost)
        if (known is not None and name in known.router.queues) or (vhost, name) in self._queues:
            return
        self._queues.add((vhost, name))
        self._of(vhost).queues.append(queue)
        self.lines.append(f"create {resource_text('queue', name, vhost)}")

    def _binding(self, row: Any, vhost_name: str) -> None:
        binding = binding_of(row, vhost_name, self.left_out)
        vhost = binding.vhost
        text = binding_text(row, vhost_name)
        source = self._find_exchange(vhost, binding.source)
        if source is None:
            raise LeftOut(f"{text}: there is no such exchange")
        known = self._broker.vhosts.get(vhost)
        if not self._has_destination(known, binding):
            raise LeftOut(f"{text}: there is no such {row.destination_type}")
        if self._has_binding(known, source, binding):
            return
        try:
            source.check_binding(binding.key, binding.arguments)
        except AmqpError as error:
            raise LeftOut(f"{text}: {error.text}") from None
        identity = (
            vhost,
            binding.source,
            binding.destination_is_queue,
            binding.destination,
            binding.key,
            canonical_arguments(binding.arguments),
        )
        if identity not in self._bindings:
            self._bindings.add(identity)
            self._of(vhost).bindings.append(binding)
            self.lines.append(f"create {text}")

    # -- what exists -------------------------------------------------------------------------------

    def _find_exchange(self, vhost: bytes, name: bytes) -> Exchange | None:
        """An exchange that exists or will be declared."""
        known = self._broker.vhosts.get(vhost)
        if known is not None:
            found = known.router.exchanges.get(name)
            if found is not None:
                return found
        elif (vhost, name) not in self._exchanges:
            for predeclared, type, internal in PREDECLARED:
                if predeclared == name:
                    made = make_exchange(name, type, True, False, internal, b"")
                    self._exchanges[vhost, name] = made
        return self._exchanges.get((vhost, name))

    def _has_destination(self, known: Vhost | None, binding: PutBinding) -> bool:
        if not binding.destination_is_queue:
            return self._find_exchange(binding.vhost, binding.destination) is not None
        queue = None if known is None else known.taker(binding.destination)
        if queue is not None:
            # The bindings of an exclusive queue end with it, so none is imported.
            return queue.definition.owner is None
        return (binding.vhost, binding.destination) in self._queues

    def _has_binding(self, known: Vhost | None, source: Exchange, binding: PutBinding) -> bool:
        """Whether there is a binding whose export would be the same.

        Its arguments may have types that JSON does not show.
        """
        if known is None or known.router.exchanges.get(source.name) is not source:
            return False
        ends = known.router.queues if binding.destination_is_queue else known.router.exchanges
        destination = ends.get(binding.destination)
        if destination is None:
            return False
        if binding_identity(destination, binding.key, binding.arguments) in source.outgoing:
            return True
        if not binding.arguments:
            return False
        end = (binding.destination_is_queue, binding.destination, binding.key)
        shown = _shown(binding.arguments)
        return any(_shown(each) == shown for each in self._known_arguments(source).get(end, ()))

    def _known_arguments(self, source: Exchange) -> dict[tuple[bool, bytes, bytes], list[bytes]]:
        found = self._arguments.get(source)
        if found is None:
            found = self._arguments[source] = {}
            for each in source.outgoing.values():
                if each.arguments:
                    end = (each.destination.is_queue, each.destination.name, each.key)
                    found.setdefault(end, []).append(each.arguments)
        return found


def _check_limit(vhost: Vhost, new: int) -> None:
    count, limit = len(vhost.router.queues), vhost.limits.max_queues
    if new > 0 and is_reached(limit, count + new - 1):
        raise Refusal(
            PRECONDITION,
            f'Adding {new} queue(s) to virtual host "{name_text(vhost.name)}" would exceed the '
            f"limit of {limit} queue(s).\n\nThis virtual host currently has {count} queue(s) "
            "defined.\n\nImport aborted!",
        )


def _shown(arguments: bytes) -> str:
    return json.dumps(json_of(arguments), sort_keys=True)
