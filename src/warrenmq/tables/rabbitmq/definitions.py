"""Parses an export of definitions (`rabbitmqctl export_definitions`, or the management interface).

Typed fields have the attributes that an import declares. All other attributes of an object, and all
other sections, stay in `other` unchanged.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec


class DefinitionsError(ValueError):
    """The file is no export of definitions; the text says where it is wrong."""


class _Definition(msgspec.Struct, kw_only=True):
    other: dict[str, Any] = {}


class VhostDefinition(_Definition, kw_only=True):
    """A vhost."""

    name: str


class QueueDefinition(_Definition, kw_only=True):
    """A queue. `vhost` is "" in an export of a single vhost, which does not name the vhost."""

    name: str
    vhost: str = ""
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class ExchangeDefinition(_Definition, kw_only=True):
    """An exchange; an export has no predeclared exchanges."""

    name: str
    type: str
    vhost: str = ""
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class BindingDefinition(_Definition, kw_only=True):
    """A binding to a queue or an exchange; `destination_type` says which."""

    source: str
    destination: str
    destination_type: str
    vhost: str = ""
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class Definitions(msgspec.Struct, kw_only=True):
    """One export. `other` has the sections without a field: users, permissions, policies..."""

    vhosts: list[VhostDefinition] = []
    queues: list[QueueDefinition] = []
    exchanges: list[ExchangeDefinition] = []
    bindings: list[BindingDefinition] = []
    other: dict[str, Any] = {}


_D = TypeVar("_D", bound=_Definition)


def read_definitions(path: Path) -> Definitions:
    """The export in a file; DefinitionsError when it is none, OSError when it is unreadable."""
    return parse_definitions(path.read_bytes())


def parse_definitions(data: bytes) -> Definitions:
    """The export in `data`; DefinitionsError when it is no export."""
    try:
        sections = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionsError(f"no JSON object: {error}") from None
    return Definitions(
        vhosts=_section(sections, "vhosts", VhostDefinition),
        queues=_section(sections, "queues", QueueDefinition),
        exchanges=_section(sections, "exchanges", ExchangeDefinition),
        bindings=_section(sections, "bindings", BindingDefinition),
        other=sections,
    )


def _section(sections: dict[str, Any], name: str, kind: type[_D]) -> list[_D]:
    """Remove a section from `sections` and return its definitions."""
    found = []
    known = set(kind.__struct_fields__) - {"other"}
    rows = sections.pop(name, [])
    if not isinstance(rows, list):
        raise DefinitionsError(f"{name} is no list")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DefinitionsError(f"{name}[{number}] is no object")
        try:
            definition = msgspec.convert({key: row[key] for key in row.keys() & known}, kind)
        except msgspec.ValidationError as error:
            raise DefinitionsError(f"{name}[{number}]: {error}") from None
        definition.other = {key: value for key, value in row.items() if key not in known}
        found.append(definition)
    return found
