"""The steps of a sequence: methods on a channel, and what else a client or an operator does.

A step is plain data. It prints as the Python expression that makes it, so a shortened sequence can
be pasted into a test. Steps name queues, exchanges and channels from small pools, and deliveries by
their place among the outstanding ones: any part of a sequence is a sequence again.

Kinds are the names of methods (`QueueDeclare`, with the arguments of the class in
`warrenmq.wire.methods`), and these:

| kind | values |
|---|---|
| Publish | exchange, key, mandatory, immediate, properties, bodies (of `body_of`) |
| Settle | how (ack, nack, reject), place (number, all, settled, unknown), multiple, requeue |
| Drain | queue: get until it is empty |
| CloseChannel, CloseConnection, DropConnection | |
| SetPolicy | component, name, value |
| ClearPolicy | component, name |
"""

from dataclasses import dataclass
from typing import NamedTuple

from warrenmq.wire import methods
from warrenmq.wire.field_table import Field, encode_table, fields_from_python
from warrenmq.wire.method import Method
from warrenmq.wire.properties import NO_PROPERTIES, Properties

Values = dict[str, object]


class Typed(NamedTuple):
    """A value of a field table with its type tag."""

    tag: str
    value: object


@dataclass(frozen=True)
class Step:
    """One step; `channel` is 0 for an operator's."""

    kind: str
    channel: int
    values: Values

    def __str__(self) -> str:
        values = "".join(f", {name}={value!r}" for name, value in self.values.items())
        return f"step({self.kind!r}, {self.channel}{values})"

    def text(self, name: str) -> str:
        """A value that is a text, or "" when the step does not have it."""
        value = self.values.get(name, "")
        assert isinstance(value, str), (name, value)
        return value

    def flag(self, name: str) -> bool:
        """A value that is true or false; false when the step does not have it."""
        return bool(self.values.get(name, False))


def step(kind: str, channel: int = 0, **values: object) -> Step:
    """A step, written as it prints; false and empty values are the defaults of methods."""
    return Step(
        kind,
        channel,
        {
            name: value
            for name, value in values.items()
            if value is not False and value != "" and value != {}
        },
    )


def table_of(values: Values) -> bytes:
    """The body of a field table; values may be `Typed`."""
    return encode_table({name: _field(value) for name, value in values.items()})


def _field(value: object) -> Field:
    if isinstance(value, Typed):
        inner = value.value
        return Field(ord(value.tag), inner.encode() if isinstance(inner, str) else inner)
    if isinstance(value, dict):
        return Field(ord("F"), {name: _field(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return Field(ord("A"), [_field(inner) for inner in value])
    return fields_from_python({"": value})[""]


def properties_of(values: Values) -> bytes:
    """The bytes of a message's properties; texts stand for bytes, a dict for the headers."""
    if not values:
        return NO_PROPERTIES
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, _argument(value))
    return properties.encode()


def body_of(text: str) -> bytes:
    """The body that `text` stands for: itself, or NAME:SIZE, a name cut or filled up to a size."""
    name, _, size = text.partition(":")
    return name.ljust(int(size), ".")[: int(size)].encode() if size else name.encode()


def method_of(kind: str, values: Values) -> Method:
    """The method of a step whose kind is a method's name."""
    method = getattr(methods, kind)(**{name: _argument(value) for name, value in values.items()})
    assert isinstance(method, Method)
    return method


def _argument(value: object) -> object:
    if isinstance(value, str):
        return value.encode()
    return table_of(value) if isinstance(value, dict) else value
