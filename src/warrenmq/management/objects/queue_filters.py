"""Filters of the lists of queues: by type, policy and state, without consumers, growing."""

from collections.abc import Callable
from typing import Any, Final

from starlette.datastructures import QueryParams

from warrenmq.management.errors import bad_request
from warrenmq.management.objects.queues import QueueTable
from warrenmq.management.rows import Row
from warrenmq.management.shown import Shown

_GROWTH: Final = ["messages_details", "rate"]

Filter = Callable[[Row], bool]


def queue_filters(query: QueryParams, table: QueueTable, shown: Shown) -> list[Filter]:
    """What a sketch of `table` must fulfil for the query. Raises HttpRefusal.

    `type`, `policy` (either kind) and `state` are whole names; `consumers=none` are queues without
    any, `growing=true` those with more messages than at the tick of statistics before.
    """
    found: list[Filter] = []
    for names in (("type",), ("state",), ("policy", "operator_policy")):
        if query.get(names[0]):
            values = [_column(table, name) for name in names]
            found.append(_is_one(values, query[names[0]]))
    if query.get("consumers"):
        _expect(query, "consumers", "none")
        consumers = _column(table, "consumers")
        found.append(lambda row: not consumers(row))
    if query.get("growing"):
        _expect(query, "growing", "true")
        growth = shown.queue_figure(_GROWTH)
        assert growth is not None
        found.append(lambda row: growth(row) > 0)
    return found


def _column(table: QueueTable, name: str) -> Callable[[Row], Any]:
    value = table.value([name])
    assert value is not None
    return value


def _is_one(values: list[Callable[[Row], Any]], wanted: str) -> Filter:
    return lambda row: any([_word(value(row)) == wanted for value in values])


def _word(value: Any) -> Any:
    """The value, or the first of a list: a state may have figures behind its name."""
    return value[0] if isinstance(value, list) else value


def _expect(query: QueryParams, name: str, value: str) -> None:
    if query[name] != value:
        raise bad_request(f"{name} must be {value}, not {query[name]}")
