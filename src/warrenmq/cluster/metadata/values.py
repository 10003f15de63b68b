"""The JSON values of definitions in etcd; `kinds.py` of the definitions tells what they have.

Each has the number of its format. A value of a later format is refused (NewerFormat), because what
this warren does not know may matter. A value that is not such JSON raises msgspec.DecodeError.

Format 2 is that of a mirrored queue, which has a group. Everything else is written in format 1, so
that an older warren reads it.
"""

from typing import Any, Final

import msgspec

from warrenmq.broker.definitions.kinds import SHARED, Keys, Kind, getter
from warrenmq.broker.definitions.metadata import Change, MetadataError, PutQueue

# The latest format that this warren reads.
FORMAT: Final = 2
_WITHOUT_GROUP: Final = 1
_WITH_GROUP: Final = 2


class NewerFormat(MetadataError):
    """A definition was written by a later warren than this one."""


class _Format(msgspec.Struct):
    format: int


def value_of(change: Change) -> bytes:
    """The value that `change`, which is a Put..., writes; raises TypeError for any other."""
    kept = _VALUES.get(type(change))
    if kept is None:
        raise TypeError(f"{type(change).__name__} is no change that writes to a cluster")
    struct, get = kept
    has_group = isinstance(change, PutQueue) and change.group
    format = _WITH_GROUP if has_group else _WITHOUT_GROUP
    return msgspec.json.encode(struct(format, *get(change)))


def attributes_of(kind: Kind[Any], value: bytes) -> list[Any]:
    """The attributes of a definition that are in its value, in the order of the kind."""
    struct, _get = _VALUES[kind.put]
    try:
        format, *attributes = msgspec.structs.astuple(msgspec.json.decode(value, type=struct))
    except msgspec.DecodeError:
        _check(msgspec.json.decode(value, type=_Format).format)
        raise
    _check(format)
    return attributes


def _check(format: int) -> None:
    if format > FORMAT:
        raise NewerFormat(
            f"etcd has definitions of format {format}; this warren reads up to format {FORMAT}"
        )


def _struct(keys: Keys) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [("format", int)]
    for name, meaning in keys.value.items():
        if isinstance(meaning, type):
            fields.append((name, meaning))
        else:
            # Lists are lists of texts.
            type_ = list[str] if isinstance(meaning, list) else type(meaning)
            fields.append((name, type_, meaning))
    return msgspec.defstruct(keys.name, fields, omit_defaults=True)


# The JSON of each kind and the attributes that are in it, by the class that writes a definition.
_VALUES: Final = {kind.put: (_struct(kind.keys), getter(kind.keys.value)) for kind in SHARED}
