"""The definitions of a cluster as keys and values of etcd.

A key is `/warren/CLUSTER/KIND/PART/...`. Each part is percent-encoded, so it may have any bytes,
and `/` only separates. `kinds.py` of the definitions tells the kinds with their parts. There is
one more: global parameters, of which the vhost and the component are empty, have keys
`globals/NAME`. The destination of a binding is a queue or an exchange: that part is `q` or `x`.

A key tells all that identifies a definition, so a deletion can be followed without the value that
the key had. (A watch can tell the values before deletions too, but etcd takes 15 s to find those of
10,000 keys.) Values are JSON, see `values.py`; the birth of a vhost, a queue, an exchange
or a sink is its key's create revision.

Keys of other kinds are *records*: they belong to other parts of the cluster.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from warrenmq.broker.definitions.kinds import KIND_OF, PARAMETERS, SHARED, VHOSTS, Kind, getter
from warrenmq.broker.definitions.metadata import NO_ID, Change, DeleteQueue, MetadataDamaged
from warrenmq.cluster.metadata.values import attributes_of

_GLOBAL_PARAMETERS: Final = "globals"
_KINDS_BY_NAME: Final = {kind.keys.name: kind for kind in SHARED}
# The names of all kinds, each after those that it needs.
KIND_NAMES: Final = (*_KINDS_BY_NAME, _GLOBAL_PARAMETERS)
# The names of kinds whose first part is a vhost: they go with it.
NAMES_OF_VHOST: Final = tuple(kind.keys.name for kind in SHARED if VHOSTS in kind.owners)
# The attributes that are in the key of a change, by its class.
_GETTERS: Final = {
    change: getter(kind.keys.parts) for kind in SHARED for change in (kind.put, kind.delete)
}
# Attributes that are no bytes, from the parts of a key.
_READ: Final[dict[Any, Callable[[bytes], Any]]] = {str: bytes.decode, bool: b"q".__eq__}


def _picker(told: Iterable[str], wanted: Iterable[str]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that picks, from the attributes `told`, those that a change wants as arguments."""
    names = list(told)
    first, *others = [names.index(name) for name in dict.fromkeys(wanted)]
    pick = itemgetter(first, *others)
    return pick if others else lambda attributes: (pick(attributes),)


# The arguments of each Put... and Delete..., from what key, value and etcd tell. The id of a vhost
# or a queue, and the stages of a sink, are a node's own.
_PUT_ARGUMENTS: Final = {
    kind: _picker(
        (*kind.keys.parts, "id", "stages", *kind.keys.value, *kind.keys.revisions),
        (*kind.columns, *kind.keys.value, *kind.keys.revisions),
    )
    for kind in SHARED
}
_DELETE_ARGUMENTS: Final = {
    kind: _picker((*kind.keys.parts, "id"), (*kind.table.key, *kind.keys.parts)) for kind in SHARED
}
# The parts of keys that are no bytes, with what reads them.
_CONVERSIONS: Final = {
    kind: [
        (place, _READ[kind.columns[name]])
        for place, name in enumerate(kind.keys.parts)
        if kind.columns[name] in _READ
    ]
    for kind in SHARED
}


def prefix_of(cluster: str, kind: str = "", *parts: bytes) -> bytes:
    """The beginning of all keys of the cluster, of one kind, or of one kind below `parts`."""
    names = ["", "warren", quote(cluster, safe="")]
    if kind:
        names.append(kind)
    return "/".join([*names, *(quote(part, safe="") for part in parts), ""]).encode()


def record_key(cluster: str, kind: str, *parts: bytes) -> bytes:
    """The key of a record, such as ("nodes", NAME); ("meta",) has no parts."""
    return prefix_of(cluster, kind, *parts)[:-1]


def key_of(cluster: str, change: Change) -> bytes:
    """The key that `change` writes or deletes.

    Raises TypeError for a change that a cluster does not share, ValueError for the deletion of a
    queue without a name.
    """
    get = _GETTERS.get(type(change))
    if get is None:
        raise TypeError(f"{type(change).__name__} is no change that a cluster shares")
    if isinstance(change, DeleteQueue) and not change.name:
        raise ValueError("a cluster finds a queue by its name")
    parts = [_part(attribute) for attribute in get(change)]
    kind = KIND_OF[type(change)]
    if kind is PARAMETERS and not parts[1]:
        return record_key(cluster, _GLOBAL_PARAMETERS, parts[2])
    return record_key(cluster, kind.keys.name, *parts)


def _part(attribute: bytes | str | bool) -> bytes:
    if isinstance(attribute, bytes):
        return attribute
    if isinstance(attribute, str):
        return attribute.encode()
    return b"q" if attribute else b"x"


def change_of(key: bytes, value: bytes, create_revision: int, mod_revision: int) -> Change | None:
    """The Put... that wrote `key`, with its birth and revision; None for a record.

    Ids are NO_ID, and a sink's list of stages is empty. Raises NewerFormat for a value of a later
    warren, MetadataDamaged for a key or a value that no warren writes.
    """
    kind, parts = _definition_of(key)
    if kind is None:
        return None
    try:
        identity, attributes = _identity(kind, parts), attributes_of(kind, value)
    except (ValueError, msgspec.DecodeError) as error:
        raise _damage(key, error) from None
    told = (*identity, NO_ID, [], *attributes, create_revision, mod_revision)
    change: Change = kind.put(*_PUT_ARGUMENTS[kind](told))
    return change


def deletion_of(key: bytes) -> Change | None:
    """The Delete... of `key`, None for a record; raises MetadataDamaged as `change_of`."""
    kind, parts = _definition_of(key)
    if kind is None:
        return None
    try:
        told = (*_identity(kind, parts), NO_ID)
    except ValueError as error:
        raise _damage(key, error) from None
    return kind.delete(*_DELETE_ARGUMENTS[kind](told))


def parts_of(key: bytes) -> tuple[str, list[bytes]]:
    """The name of the kind and the parts of any key of a cluster."""
    name, *parts = key.split(b"/")[3:]
    return name.decode(errors="replace"), [unquote_to_bytes(part) for part in parts]


def _definition_of(key: bytes) -> tuple[Kind[Any] | None, list[bytes]]:
    """The kind of a definition and the parts that its kind has; None for a record."""
    name, parts = parts_of(key)
    if name == _GLOBAL_PARAMETERS:
        return PARAMETERS, [b"", b"", *parts]
    return _KINDS_BY_NAME.get(name), parts


def _identity(kind: Kind[Any], parts: list[Any]) -> list[Any]:
    """The attributes that the parts of a key are; raises ValueError."""
    if len(parts) != len(kind.keys.parts):
        raise ValueError(f"{len(parts)} parts are not those of {kind.keys.name}")
    for place, read in _CONVERSIONS[kind]:
        parts[place] = read(parts[place])
    return parts


def _damage(key: bytes, error: Exception) -> MetadataDamaged:
    return MetadataDamaged(f"etcd's key {key.decode(errors='replace')} is damaged: {error}")
