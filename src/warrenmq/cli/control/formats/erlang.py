"""The format `erlang`: results as RabbitMQ's terms, as far as values of JSON tell what they were.

Names and texts are binaries, kinds and states atoms. Tables of arguments are lists of name, type
and value; the types of numbers are lost on the way, so that every whole number is a `signedint` or
a `long`.
"""

import re
from typing import Any, Final

from warrenmq.cli.control.formats.erlang_terms import Atom, Bare
from warrenmq.cli.control.formats.values import Json, cell_text

# Columns whose texts are atoms.
_ATOMS: Final = (
    "activity_status", "destination_kind", "leader", "members", "node", "online",
    "recoverable_slaves", "slave_nodes", "source_kind", "state", "synchronised_slave_nodes", "tags",
    "type",
)  # fmt: skip
# A vhost that decides nothing about its queues.
_NO_TYPE: Final = ("default_queue_type", "undefined")
_ADDRESSES: Final = ("host", "peer_host")
# Columns with a field table of AMQP.
_TABLES: Final = ("arguments", "client_properties")
_PID: Final = re.compile(r"<.*\.\d+\.\d+\.\d+>$")
_IPV4: Final = re.compile(r"\d+\.\d+\.\d+\.\d+$")
_INT_MAX: Final = 2**31


def row_term(columns: tuple[str, ...], row: list[Any]) -> list[Any]:
    """A row of a listing as a list of columns with their values."""
    return [(Atom(name), _cell(name, value)) for name, value in zip(columns, row, strict=True)]


def row_map(columns: tuple[str, ...], row: list[Any]) -> dict[Any, Any]:
    """A row of a listing as a map."""
    return {Atom(name): _cell(name, value) for name, value in zip(columns, row, strict=True)}


def data_term(value: Any, name: str = "") -> Any:
    """Data of a report: an object is a list of keys, which are atoms, with their values."""
    if isinstance(value, dict):
        return [(Atom(key), data_term(each, key)) for key, each in value.items()]
    if isinstance(value, list):
        return [data_term(each, name) for each in value]
    return _cell(name, value)


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return Atom("")
    if isinstance(value, Json):
        return cell_text(value)
    if name in _TABLES and isinstance(value, dict):
        return _table(value)
    if isinstance(value, list):
        return [_cell(name, each) for each in value]
    if isinstance(value, tuple):
        return tuple([_cell(name, each) for each in value])
    return _text(name, value) if isinstance(value, str) else value


def _text(name: str, text: str) -> Any:
    if name in _ATOMS or (name, text) == _NO_TYPE:
        return Atom(text)
    if name == "protocol":
        return _protocol(text)
    if name in _ADDRESSES and _IPV4.match(text):
        return tuple([int(part) for part in text.split(".")])
    return Bare(text) if _PID.match(text) else text


def _protocol(text: str) -> Any:
    """The protocol of a connection, of a listener, or of a login."""
    if text.startswith("{"):
        return Bare(text)
    return Atom(text) if text.partition("/")[0] == "amqp" else text


def _table(table: dict[str, Any]) -> list[Any]:
    return [(name, *_field(value)) for name, value in table.items()]


def _field(value: Any) -> tuple[Atom, Any]:
    if isinstance(value, bool):
        return Atom("bool"), value
    if isinstance(value, int):
        return Atom("signedint" if -_INT_MAX <= value < _INT_MAX else "long"), value
    if isinstance(value, float):
        return Atom("double"), value
    if isinstance(value, dict):
        return Atom("table"), _table(value)
    if isinstance(value, list):
        return Atom("array"), [_field(each) for each in value]
    return (Atom("void"), value) if value is None else (Atom("longstr"), value)
