"""The SQL of each change of the definitions, from their kinds."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from warrenmq.broker.definitions.kinds import KINDS, QUEUES, Fields, Kind, getter
from warrenmq.broker.definitions.metadata import Change

# A statement with its values.
Statement = tuple[str, Sequence[Any]]
# The values of a statement for a change.
_Values = Callable[[Change], Sequence[Any]]

# Marks an id as used: a queue whose definition was refused may have messages in the journal, and a
# start must treat it as deleted.
_NUMBER_QUEUE: Final = "UPDATE numbering SET next_queue_id = ?1 + 1 WHERE next_queue_id <= ?1"


def statements(change: Change) -> list[Statement]:
    """The SQL statements of one change, each with its values."""
    if type(change) not in _STATEMENTS:
        raise TypeError(f"{type(change).__name__} is no change that can be stored")
    return [(sql, values(change)) for sql, values in _STATEMENTS[type(change)]]


def columns(names: Iterable[str]) -> str:
    """Columns as SQL wants them.

    `group` is a word of SQL, so names need marks; SQLite takes a name in quotes for a text if there
    is no such column, so the marks are brackets.
    """
    return ", ".join(f"[{name}]" for name in names)


def _put(kind: Kind[Any]) -> tuple[str, _Values]:
    # The statement updates instead of replacing: a row keeps its place in the order of first
    # writing.
    table, places = kind.table, ", ".join("?" * len(kind.columns))
    changed = ", ".join(f"[{name}] = excluded.[{name}]" for name in table.others)
    insert = f"INSERT INTO {table.name} ({columns(kind.columns)}) VALUES ({places})"  # noqa: S608  # our names
    action = f"UPDATE SET {changed}" if changed else "NOTHING"
    return f"{insert} ON CONFLICT ({columns(table.key)}) DO {action}", _values(kind.columns)


def _deletions(kind: Kind[Any]) -> list[tuple[str, _Values]]:
    key = _values(kind.table.key)
    found = [(_delete(kind, kind.table.key), key)]
    found.extend((_delete(owned, names), key) for owned, names in kind.owned())
    if kind is QUEUES:
        found.append((_NUMBER_QUEUE, _values({"id": int})))
    return found


def _delete(kind: Kind[Any], names: Iterable[str]) -> str:
    condition = " AND ".join(f"[{name}] = ?" for name in names)
    return f"DELETE FROM {kind.table.name} WHERE {condition}"  # noqa: S608  # our names


def _values(fields: Fields) -> _Values:
    """The attributes of a change; lists are stored as texts."""
    get = getter(fields)
    joins = [(place, _JOINS[type]) for place, type in enumerate(fields.values()) if type in _JOINS]
    if not joins:
        return get

    def values(change: Change) -> Sequence[Any]:
        found = list(get(change))
        for place, join in joins:
            found[place] = join(found[place])
        return found

    return values


_JOINS: Final[dict[Any, Callable[[list[Any]], str]]] = {
    list[str]: "\n".join,
    list[int]: lambda numbers: " ".join(map(str, numbers)),
}
_STATEMENTS: Final = {kind.put: [_put(kind)] for kind in KINDS} | {
    kind.delete: _deletions(kind) for kind in KINDS
}
