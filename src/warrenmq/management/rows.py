"""Lists as RabbitMQ gives them: `sort`, `sort_reverse`, `columns`, pages and the filter by name."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol

import msgspec
from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import Response

from warrenmq.management.errors import HttpRefusal, bad_request
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import compiled

Row = dict[str, Any]

# Rows that are encoded at once, in a few milliseconds.
_SLICE_ROWS: Final = 200
_PAGE_SIZE: Final = 100
_PAGE_SIZE_MAX: Final = 500
# Longest pattern of a filter, as RabbitMQ's own pages send at most.
_PATTERN_MAX: Final = 1000
_TRUE: Final = "true"
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
# Fields that are not columns of the node's.
_SHOWN: Final = re.compile(r"message_stats\.|[a-z_]+_details\.|(recv|send)_oct$")


class JsonReply(Response):
    """A reply whose content is encoded at once, without a look at its types."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """`content` as JSON."""
        return msgspec.json.encode(content)


class ListReply(JsonReply):
    """A reply with rows, or with an object that has some.

    Rows of an iterator are made and encoded in slices: other requests of the process run in
    between, and few of the rows are in memory at a time.
    """

    def render(self, content: Any) -> bytes:
        """`content` as JSON."""
        if not isinstance(content, Iterator):
            return super().render(content)
        parts = []
        while rows := list(islice(content, _SLICE_ROWS)):
            parts.append(msgspec.json.encode(rows)[1:-1])
        return b"".join((b"[", b",".join(parts), b"]"))


class PageReply(ListReply):
    """A reply with rows, or with a page of them."""


class ObjectReply(JsonReply):
    """A reply with one object."""


class Show(Protocol):
    """Adds figures to a row, and their samples unless the row is only to be sorted."""

    def __call__(self, row: Row, has_samples: bool = True) -> Row: ...


def listed(request: Request, rows: Sequence[Row], show: Show | None = None) -> ListReply:
    """A reply with the columns that the query asks for, in its order; `show` adds to each row."""
    query = request.query_params
    ordered = _sorted(query, _with_sorted_figures(query, show, rows))
    return ListReply(_columned(query, _with(show, ordered)))


def name_of(row: Row) -> tuple[str, ...]:
    """The texts of a row that the filter by name looks at: its name."""
    return (str(row.get("name", "")),)


def paged(
    request: Request,
    rows: Sequence[Row],
    show: Show | None = None,
    value: Callable[[Row], Any] | None = None,
    filters: Sequence[Callable[[Row], bool]] = (),
    complete: Callable[[Sequence[Row]], Iterator[Row]] = iter,
    names: Callable[[Row], tuple[str, ...]] = name_of,
    is_ordered: bool = False,
) -> PageReply:
    """A reply with the rows that pass the filters, as a page if the query names one.

    `complete` makes rows of the reply of those among `rows` that are shown. `show` adds to them,
    and to all rows when they are sorted by what it adds, unless `value` gives the value of a row by
    which the query sorts. `names` gives the texts of a row of which one must fit the filter by
    name. `is_ordered`: the rows are in the order of vhosts and names. Raises HttpRefusal for a page
    that cannot be.
    """
    query = request.query_params
    total = len(rows)
    for is_wanted in filters:
        rows = [row for row in rows if is_wanted(row)]
    if value is None:
        rows = _with_sorted_figures(query, show, rows)
    if "page" not in query:
        return PageReply(
            _columned(query, _with(show, complete(_sorted(query, rows, value, is_ordered))))
        )
    page, size = asked_page(query)
    found = _filtered(query, rows, names)
    pages = page_count(page, size, len(found))
    chosen = _sorted(query, found, value, is_ordered)[(page - 1) * size : page * size]
    items = list(_columned(query, _with(show, complete(chosen))))
    return PageReply(
        {
            "filtered_count": len(found),
            "item_count": len(items),
            "items": items,
            "page": page,
            "page_count": pages,
            "page_size": size,
            "total_count": total,
        }
    )


def asked_page(query: QueryParams) -> tuple[int, int]:
    """The number and the size of the page that a query names. Raises HttpRefusal."""
    page = _number(query, "page", 1)
    size = _number(query, "page_size", _PAGE_SIZE)
    if page < 1 or not 1 <= size <= _PAGE_SIZE_MAX:
        shown = query.get("page_size", "undefined")
        raise HttpRefusal(
            400,
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {page}, page size {shown}",
        )
    return page, size


def page_count(page: int, size: int, rows: int) -> int:
    """How many pages some rows take, at least one. Raises HttpRefusal if `page` is none of them."""
    pages = max(1, -(-rows // size))
    if page > pages:
        raise HttpRefusal(
            400,
            "page_out_of_range",
            f"Page out of range, page: {page} page size: {size}, len: {rows}",
        )
    return pages


def single(request: Request, row: Row) -> ObjectReply:
    """A reply with one object, of which the query may ask for some columns."""
    return ObjectReply(next(_columned(request.query_params, iter([row]))))


def _with_sorted_figures(
    query: QueryParams, show: Show | None, rows: Sequence[Row]
) -> Sequence[Row]:
    """The rows, with what `show` adds if they are to be sorted by that."""
    if show is None or not _SHOWN.match(query.get("sort", "")):
        return rows
    return [show(row, has_samples=False) for row in rows]


def _with(show: Show | None, rows: Iterable[Row]) -> Iterator[Row]:
    return iter(rows) if show is None else (show(row) for row in rows)


def asks_for(request: Request, names: Sequence[str]) -> bool:
    """Whether the reply shows one of these fields, or is sorted by one."""
    columns = [name for name in request.query_params.get("columns", "").split(",") if name]
    used = [*columns, request.query_params.get("sort", "")]
    return not columns or any([name.split(".")[0] in names for name in used])


# -- steps -----------------------------------------------------------------------------------------


def _number(query: QueryParams, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not _NUMBER.fullmatch(text):
        raise bad_request("Pagination parameters are invalid")
    return int(text)


def _filtered(
    query: QueryParams, rows: Sequence[Row], names: Callable[[Row], tuple[str, ...]]
) -> Sequence[Row]:
    wanted = query.get("name", "")
    if not wanted:
        return rows
    matches = _pattern(wanted) if query.get("use_regex") == _TRUE else _part(wanted)
    return [row for row in rows if any([matches(text) for text in names(row)])]


def _part(wanted: str) -> Callable[[str], bool]:
    lowered = wanted.lower()
    return lambda name: lowered in name.lower()


def _pattern(wanted: str) -> Callable[[str], bool]:
    if len(wanted) > _PATTERN_MAX:
        raise bad_request("Pagination parameters are invalid")
    try:
        pattern = compiled(f"(?i){wanted}")
    except PatternError:
        raise bad_request("Pagination parameters are invalid") from None
    return lambda name: pattern.is_found_in(name.encode())


def _sorted(
    query: QueryParams,
    rows: Sequence[Row],
    value: Callable[[Row], Any] | None = None,
    is_ordered: bool = False,
) -> Sequence[Row]:
    """The rows in the order asked for; vhost and name decide between equal ones."""
    ordered = list(rows)
    if not is_ordered:
        ordered.sort(key=lambda row: (str(row.get("vhost", "")), str(row.get("name", ""))))
    path = query.get("sort", "").split(".")
    if path != [""]:
        wanted = value or (lambda row: value_at(row, path))
        ordered.sort(key=lambda row: _rank(wanted(row)))
    if query.get("sort_reverse") == _TRUE:
        ordered.reverse()
    return ordered


def value_at(value: Any, path: list[str]) -> Any:
    """The value at a dotted path, None if there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _rank(value: Any) -> tuple[int, float, str]:
    """A key that orders values of all types: absent ones first, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _columned(query: QueryParams, rows: Iterator[Row]) -> Iterator[Row]:
    names = [name for name in query.get("columns", "").split(",") if name]
    if not names:
        return rows
    paths = [name.split(".") for name in names]
    return (_picked(row, paths) for row in rows)


def _picked(row: Row, paths: list[list[str]]) -> Row:
    """The parts of `row` at the paths, nested as they are there."""
    picked: Row = {}
    for path in paths:
        parent = value_at(row, path[:-1])
        if not isinstance(parent, dict) or path[-1] not in parent:
            continue
        place = picked
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = parent[path[-1]]
    return picked
