"""A dry run: which declarations of a topology a broker has, lacks, or has otherwise.

AMQP alone tells whether an exchange or a queue exists, and nothing about its attributes or about
bindings; a declaration that compared them would also create what is missing. `node_listings.py`
finds everything in a warren node's listings.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from warrenmq.topology.arguments import ArgumentValue, same_value
from warrenmq.topology.bindings import Binding
from warrenmq.topology.declarable import field_names_by_argument
from warrenmq.topology.declaring import DeclarationRefusedError
from warrenmq.topology.exchanges import Exchange
from warrenmq.topology.queues import Queue
from warrenmq.topology.requests import Refused, Request
from warrenmq.topology.topology import Declaration, Topology

_NOT_FOUND: Final = 404


class Finding(Enum):
    """How a broker stands to a declaration."""

    MISSING = "missing"
    EQUAL = "equal"
    # A declaration is refused, or leaves the broker's one as it is.
    DIFFERS = "differs"
    # An exchange or a queue of this name exists; its attributes are unknown.
    EXISTS = "exists"
    # Nobody can tell whether the binding exists.
    UNKNOWN = "unknown"


_SIGNS: Final = {
    Finding.MISSING: "+",
    Finding.EQUAL: "=",
    Finding.DIFFERS: "!",
    Finding.EXISTS: "~",
    Finding.UNKNOWN: "?",
}


@dataclass(frozen=True)
class Difference:
    """An attribute or argument: the broker has `old`, the topology `new`; None = not declared."""

    name: str
    old: ArgumentValue
    new: ArgumentValue

    def __str__(self) -> str:
        return f"{self.name} is {_shown(self.old)}, here {_shown(self.new)}"


@dataclass(frozen=True)
class Change:
    """A declaration and what the broker has of it."""

    declaration: Declaration
    finding: Finding
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        details = f": {'; '.join(map(str, self.differences))}" if self.differences else ""
        return f"{_SIGNS[self.finding]} {self.declaration} {self.finding.value}{details}"


@dataclass(frozen=True)
class Plan:
    """The findings that `declare` would have, declaration by declaration."""

    changes: tuple[Change, ...]
    # Why attributes and bindings are not compared; "" if they are.
    not_compared_because: str = ""

    def of(self, finding: Finding) -> list[Declaration]:
        """The declarations with this finding."""
        return [change.declaration for change in self.changes if change.finding is finding]

    @property
    def is_done(self) -> bool:
        """Whether the broker is known to have the whole topology."""
        return len(self.of(Finding.EQUAL)) == len(self.changes)

    def __str__(self) -> str:
        lines = list(map(str, self.changes))
        if self.not_compared_because:
            lines.append(f"existing ones are not compared: {self.not_compared_because}")
        return "\n".join(lines)


@dataclass(frozen=True)
class ExistingQueue:
    """A queue of a broker."""

    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: Mapping[str, ArgumentValue]


@dataclass(frozen=True)
class ExistingExchange:
    """An exchange of a broker; a delayed one has its declared type x-delayed-message."""

    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, ArgumentValue]


@dataclass(frozen=True)
class Existing:
    """Everything that a vhost has."""

    exchanges: Mapping[str, ExistingExchange] = field(default_factory=dict)
    queues: Mapping[str, ExistingQueue] = field(default_factory=dict)
    # Arguments of bindings by their ends.
    bindings: Mapping[tuple[str, str, str, str], Sequence[Mapping[str, ArgumentValue]]] = field(
        default_factory=dict
    )


def compared(topology: Topology, existing: Existing) -> Plan:
    """The plan for a broker of which everything is known."""
    return Plan(tuple(_compared(declaration, existing) for declaration in topology))


def probing(topology: Topology, why: str) -> Generator[Request, str, Plan]:
    """Passive requests, and the plan for a broker that answers nothing but them.

    `why`: the reason for asking no other way. Raises DeclarationRefusedError for refusals other
    than 404.
    """
    changes: list[Change] = []
    missing: set[tuple[str, str]] = set()
    for declaration in topology:
        if isinstance(declaration, Binding):
            ends = {
                ("exchange", declaration.exchange),
                (declaration.destination_type, declaration.destination),
            }
            finding = Finding.MISSING if ends & missing else Finding.UNKNOWN
            changes.append(Change(declaration, finding))
            continue
        is_there = True
        if isinstance(declaration, Queue) and not declaration.name:
            # Each declaration makes a new queue.
            is_there = False
        else:
            try:
                yield Request(declaration, is_passive=True)
            except Refused as refused:
                if refused.code != _NOT_FOUND:
                    raise DeclarationRefusedError(
                        refused.code, refused.text, declaration, (), ()
                    ) from None
                is_there = False
        if not is_there:
            name = declaration.local_name if isinstance(declaration, Queue) else declaration.name
            missing.add((declaration.kind, name))
        changes.append(Change(declaration, Finding.EXISTS if is_there else Finding.MISSING))
    return Plan(tuple(changes), why)


def _shown(value: ArgumentValue) -> str:
    return "not declared" if value is None else repr(value)


def _compared(declaration: Declaration, existing: Existing) -> Change:
    if isinstance(declaration, Binding):
        return Change(declaration, _binding_finding(declaration, existing))
    if isinstance(declaration, Exchange):
        found_exchange = existing.exchanges.get(declaration.name)
        if found_exchange is None:
            return Change(declaration, Finding.MISSING)
        differences = [
            *_flags(found_exchange, declaration, ("durable", "auto_delete", "internal")),
            *_arguments(found_exchange.arguments, declaration),
        ]
        if found_exchange.type != declaration.declared_type:
            type = Difference("type", found_exchange.type, declaration.declared_type)
            differences.insert(0, type)
    else:
        found_queue = existing.queues.get(declaration.name)
        if found_queue is None:
            return Change(declaration, Finding.MISSING)
        differences = [
            *_flags(found_queue, declaration, ("durable", "auto_delete", "exclusive")),
            *_arguments(found_queue.arguments, declaration),
        ]
    finding = Finding.DIFFERS if differences else Finding.EQUAL
    return Change(declaration, finding, tuple(differences))


def _flags(
    found: ExistingExchange | ExistingQueue, declared: Exchange | Queue, names: tuple[str, ...]
) -> list[Difference]:
    return [
        Difference(name, getattr(found, name), getattr(declared, name))
        for name in names
        if getattr(found, name) != getattr(declared, name)
    ]


def _arguments(found: Mapping[str, ArgumentValue], declared: Exchange | Queue) -> list[Difference]:
    wanted = declared.declared_arguments
    names = field_names_by_argument(declared)
    return [
        Difference(names.get(key, key), found.get(key), wanted.get(key))
        for key in sorted(found.keys() | wanted.keys())
        if (key in found) != (key in wanted) or not same_value(found[key], wanted[key])
    ]


def _binding_finding(binding: Binding, existing: Existing) -> Finding:
    wanted = dict(binding.arguments)
    found = existing.bindings.get(binding.ends, ())
    is_there = any(same_value(dict(arguments), wanted) for arguments in found)
    return Finding.EQUAL if is_there else Finding.MISSING
