"""Writes a topology as YAML, in the form that `yaml_reading.py` reads."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

try:
    import yaml
except ModuleNotFoundError:
    raise ImportError("YAML needs PyYAML: install warrenmq[topology]") from None

from warrenmq.topology.bindings import Binding
from warrenmq.topology.exchanges import Exchange
from warrenmq.topology.queues import Queue

# PyYAML writes these line breaks and marks as they are, and reads them as something else. A
# document with one of them has escapes for everything beyond ASCII.
_MISREAD: Final = ("\x85", "\u2028", "\u2029", "\ufeff")


def write_yaml(
    exchanges: Sequence[Exchange], queues: Sequence[Queue], bindings: Sequence[Binding]
) -> str:
    """The declarations as YAML. ValueError for a queue without a name."""
    for queue in queues:
        if not queue.name:
            raise ValueError("a queue without a name cannot be written: each declaration makes one")
    sections: dict[str, Any] = {
        "exchanges": {exchange.name: _attributes(exchange, Exchange) for exchange in exchanges},
        "queues": {queue.name: _attributes(queue, Queue) for queue in queues},
        "bindings": [_binding(binding) for binding in bindings],
    }
    filled = {name: section for name, section in sections.items() if section}
    text = str(yaml.safe_dump(filled, sort_keys=False, allow_unicode=True))
    if any(mark in text for mark in _MISREAD):
        text = str(yaml.safe_dump(filled, sort_keys=False, allow_unicode=False))
    return text


def _attributes(
    declaration: Exchange | Queue, kind: type[Exchange] | type[Queue]
) -> dict[str, Any]:
    """The attributes that differ from the defaults of `kind`."""
    written: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        value = getattr(declaration, each.name)
        if not each.init or each.name == "name" or value == each.default:
            continue
        if each.name != "arguments":
            written[each.name] = value
        elif value:
            written[each.name] = dict(value)
    return written


def _binding(binding: Binding) -> dict[str, Any]:
    end = "queue" if binding.destination_type == "queue" else "to_exchange"
    written: dict[str, Any] = {"exchange": binding.exchange, end: binding.destination}
    if binding.routing_key:
        written["routing_key"] = binding.routing_key
    if binding.arguments:
        written["arguments"] = dict(binding.arguments)
    return written
