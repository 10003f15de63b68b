"""Rows of a node's listings, vhost by vhost."""

from collections.abc import Iterable
from typing import Any

import msgspec

from warrenmq.admin.protocol.control import MONITORING, List, Rows
from warrenmq.management.access import vhosts_seen
from warrenmq.management.errors import not_found
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller


def rows_of_vhosts(
    caller: Caller,
    what: Any,
    columns: Iterable[str],
    vhosts: Iterable[str],
    names: list[str] | None = None,
) -> list[Row]:
    """The rows of a listing in these vhosts, with a field `vhost`; with `names`, only those."""
    shown = list(columns)
    found = []
    with caller.session() as call:
        for vhost in vhosts:
            asked = List(what=what, columns=shown, vhost=vhost, names=names)
            for row in call(asked, Rows).rows:
                found.append({**dict(zip(shown, row, strict=True)), "vhost": vhost})
    return found


def listed_for(caller: Caller) -> str:
    """Whose connections and channels the caller sees: a user's, or "" for those of all users."""
    return "" if caller.has_tag(MONITORING) else caller.user


def vhosts_of(caller: Caller, vhost: str | None) -> list[str]:
    """The vhost that a path names, or all that the caller sees."""
    return vhosts_seen(caller) if vhost is None else [vhost]


def topology_stamps(caller: Caller) -> dict[str, int]:
    """A number for each vhost that changes when a queue comes or goes there, on any node."""
    rows = caller.rows("vhosts", ["name", "topology_version"])
    return {row["name"]: row["topology_version"] for row in rows}


def named(rows: Iterable[Row], name: str) -> Row:
    """The row with this name. Raises HttpRefusal if there is none."""
    for row in rows:
        if row["name"] == name:
            return row
    raise not_found()


def known(row: Row) -> Row:
    """`row` without the fields that have no value."""
    return {name: value for name, value in row.items() if value is not None}


def with_values(rows: Iterable[Row], column: str, name: str) -> list[Row]:
    """The rows with what is JSON in `column` as a value called `name`."""
    return [
        {key: value for key, value in row.items() if key != column}
        | {name: msgspec.json.decode(row[column])}
        for row in rows
    ]
