"""Reads a topology from YAML; an error names the line and the place in the document.

    exchanges:
      orders: {type: topic}
    queues:
      billing: {message_ttl: 60000, arguments: {x-comment: "of the shop"}}
    bindings:
      - {exchange: orders, queue: billing, routing_key: "order.#"}

The keys of exchanges and queues are the fields of `Exchange` and `Queue`. A binding to an exchange
has `to_exchange` instead of `queue`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, TypeVar

try:
    import yaml
except ModuleNotFoundError:
    raise ImportError("YAML needs PyYAML: install warrenmq[topology]") from None

from warrenmq.topology.bindings import Binding
from warrenmq.topology.document_error import DocumentError
from warrenmq.topology.exchanges import Exchange
from warrenmq.topology.queues import Queue

# Tags of nodes. A document may set a tag itself, so that a node's form and its tag disagree.
_MAPPING: Final = "tag:yaml.org,2002:map"
_SEQUENCE: Final = "tag:yaml.org,2002:seq"
_TEXT: Final = "tag:yaml.org,2002:str"
_NULL: Final = "tag:yaml.org,2002:null"
_MERGE: Final = "tag:yaml.org,2002:merge"
_SECTIONS: Final = ("exchanges", "queues", "bindings")
_BINDING_KEYS: Final = ("exchange", "queue", "to_exchange", "routing_key", "arguments")

Declared = TypeVar("Declared", Exchange, Queue)


def read_yaml(text: str, source: str) -> list[Exchange | Queue | Binding]:
    """The declarations in `text`; `source` names it in errors. Raises DocumentError."""
    reader = _Reader(source)
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        return [] if root is None else list(reader.declarations(root))
    except yaml.MarkedYAMLError as error:
        why = ": ".join(part for part in (error.context, error.problem) if part)
        raise _error(source, error.problem_mark or error.context_mark, "", why) from None
    except yaml.YAMLError as error:
        raise _error(source, None, "", str(error)) from None
    except RecursionError:
        raise _error(source, None, "", "it is nested too deeply") from None


class _Reader:
    """Walks the nodes of one document; a place is written as `queues.billing.message_ttl`."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._constructor = yaml.constructor.SafeConstructor()

    def declarations(self, root: yaml.Node) -> Iterator[Exchange | Queue | Binding]:
        """The declarations in a document, section by section."""
        sections = self._mapping(root, "")
        for name, (key, _) in sections.items():
            if name not in _SECTIONS:
                raise self._error(key, "", f"there is no {name!r}, only {', '.join(_SECTIONS)}")
        if "exchanges" in sections:
            yield from self._named(Exchange, sections["exchanges"][1], "exchanges")
        if "queues" in sections:
            yield from self._named(Queue, sections["queues"][1], "queues")
        if "bindings" in sections:
            yield from self._bindings(sections["bindings"][1])

    def _named(self, kind: type[Declared], section: yaml.Node, place: str) -> Iterator[Declared]:
        keys = [each.name for each in dataclasses.fields(kind) if each.init and each.name != "name"]
        for name, (key, node) in self._mapping(section, place).items():
            here = f"{place}.{name}"
            given: dict[str, Any] = self._attributes(node, here, keys)
            if not name:
                raise self._error(key, here, "a name is empty")
            try:
                yield kind(name, **given)
            except (TypeError, ValueError) as error:
                culprit = self._culprit(kind, name, node, given)
                raise self._error(culprit or key, here, str(error)) from None

    def _culprit(
        self, kind: type[Exchange] | type[Queue], name: str, node: yaml.Node, given: dict[str, Any]
    ) -> yaml.Node | None:
        """The node of the first attribute that is wrong on its own, if one is."""
        for attribute, value in given.items():
            try:
                kind(name, **{attribute: value})
            except (TypeError, ValueError):
                return self._mapping(node, "")[attribute][1]
        return None

    def _bindings(self, section: yaml.Node) -> Iterator[Binding]:
        if not _is_sequence(section):
            raise self._error(section, "bindings", "expected a list of bindings")
        for number, node in enumerate(section.value):
            here = f"bindings[{number}]"
            given = self._attributes(node, here, _BINDING_KEYS)
            if ("queue" in given) == ("to_exchange" in given):
                raise self._error(node, here, "expected either queue or to_exchange")
            to_exchange = given.pop("to_exchange", None)
            try:
                if to_exchange is None:
                    yield Binding(given.pop("exchange", ""), given.pop("queue"), **given)
                else:
                    yield Binding(
                        given.pop("exchange", ""), to_exchange, destination_type="exchange", **given
                    )
            except (TypeError, ValueError) as error:
                raise self._error(node, here, str(error)) from None

    def _attributes(self, node: yaml.Node, place: str, known: Any) -> dict[str, Any]:
        """The values of a declaration by its keys; an empty node has none."""
        if node.tag == _NULL:
            return {}
        found = self._mapping(node, place)
        for name, (key, _) in found.items():
            if name not in known:
                raise self._error(key, place, f"there is no {name!r}, only {', '.join(known)}")
        return {name: self._value(value, f"{place}.{name}") for name, (_, value) in found.items()}

    def _mapping(self, node: yaml.Node, place: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The nodes of keys and values by key. Keys are texts, each once; merges (`<<`) count."""
        if not _is_mapping(node):
            raise self._error(node, place, "expected a mapping of names")
        explicit: set[str] = set()
        for key, _ in node.value:
            name = self._key(key, place)
            if name in explicit:
                raise self._error(key, place, f"{name!r} is there twice")
            explicit.add(name)
        self._constructor.flatten_mapping(node)
        return {self._key(key, place): (key, value) for key, value in node.value}

    def _key(self, node: yaml.Node, place: str) -> str:
        if node.tag == _MERGE:
            return "<<"
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT:
            shown = f" {node.value!r}" if isinstance(node, yaml.ScalarNode) else ""
            raise self._error(node, place, f"the key{shown} is no text: put it in quotes")
        return str(node.value)

    def _value(self, node: yaml.Node, place: str) -> Any:
        if _is_mapping(node):
            pairs = self._mapping(node, place).items()
            return {name: self._value(value, f"{place}.{name}") for name, (_, value) in pairs}
        if _is_sequence(node):
            return [self._value(each, f"{place}[{at}]") for at, each in enumerate(node.value)]
        try:
            value = self._constructor.construct_object(node)
        except ValueError as error:
            raise self._error(node, place, str(error)) from None
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(
                node, place, "expected a text, whole number, boolean, list or mapping"
            )
        if isinstance(value, float):
            raise self._error(node, place, f"{node.value} is no whole number: put it in quotes")
        if value is not None and not isinstance(value, str | bool | int):
            kind = type(value).__name__
            why = f"{node.value!r} is a {kind} in YAML: put it in quotes"
            raise self._error(node, place, why)
        return value

    def _error(self, node: yaml.Node, place: str, why: str) -> DocumentError:
        return _error(self._source, node.start_mark, place, why)


def _is_mapping(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and node.tag == _MAPPING


def _is_sequence(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode) and node.tag == _SEQUENCE


def _error(source: str, mark: yaml.Mark | None, place: str, why: str) -> DocumentError:
    line, column = (0, 0) if mark is None else (mark.line + 1, mark.column + 1)
    return DocumentError(source, line, column, place, why)
