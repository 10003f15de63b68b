"""Tables of the API's lists: pages, sorting and filters on the server, and the URL holds them.

A refresh keeps each row at its place: rows that have moved to another page of the list stay,
greyed, until the next load, so that nothing moves under the pointer.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.page import Page

Row = dict[str, Any]

PAGE_SIZE: Final = 100
# Tables whose order is remembered for each sign-in.
_SHOWN_MAX: Final = 32


@dataclass(frozen=True)
class Column:
    """A column: its head, what a cell shows, and the API's field to sort by ("": not sorted).

    `is_number` aligns to the right. `is_optional`: shown if the user picks it.
    """

    title: str
    cell: Callable[[Row], h.Node]
    sort: str = ""
    is_number: bool = False
    is_optional: bool = False


def page_query(page: Page, sort: str = "", **more: Any) -> dict[str, Any]:
    """The query for a page of a list, as the URL says it."""
    found = {"page": _number(page, "page"), "page_size": PAGE_SIZE, **more}
    if page.query.get("sort") or sort:
        found["sort"] = page.query.get("sort") or sort
        found["sort_reverse"] = page.query.get("sort_reverse", "false")
    if page.query.get("name"):
        found["name"] = page.query["name"]
        found["use_regex"] = page.query.get("use_regex", "false")
    return found


def page_of(page: Page, rows: list[Row], total: int) -> dict[str, Any]:
    """The page of `rows` that the URL names, of a list of `total` rows that the API gives whole."""
    last = max(1, -(-len(rows) // PAGE_SIZE))
    at = min(max(1, _number(page, "page")), last)
    return {
        "items": rows[(at - 1) * PAGE_SIZE : at * PAGE_SIZE],
        "page": at,
        "page_count": last,
        "filtered_count": len(rows),
        "total_count": total,
    }


def filter_form(
    page: Page,
    noun: str,
    further: Mapping[str, h.Node] | None = None,
) -> h.Element:
    """A form that filters a list by name, or by a pattern of names.

    `further`: labelled fields of other filters by their name in the URL.
    """
    pattern = h.label[
        h.input(
            type="checkbox", name="use_regex", value="true",
            checked=page.query.get("use_regex") == "true",
        ),
        " pattern",
    ]  # fmt: skip
    name = filter_text(page, "name", f"Name of {noun}")
    return filter_of(page, {"name": name, "use_regex": pattern, **(further or {})})


def filter_of(page: Page, fields: Mapping[str, h.Node]) -> h.Element:
    """A form that filters a page by `fields`: labelled ones, by their name in the URL."""
    own = {"page", *fields}
    is_filtered = any([page.query.get(name) for name in fields])
    return h.form(".filter", action=f"{page.prefix}{page.path}", role="search")[
        [
            h.input(type="hidden", name=name, value=value)
            for name, value in page.query.items()
            if name not in own
        ],
        list(fields.values()),
        h.button(type="submit")["Filter"],
        is_filtered and h.a(href=page.url(**dict.fromkeys(own)))["All"],
    ]


def filter_text(page: Page, name: str, label: str) -> h.Node:
    """A line of text of a filter."""
    return [h.label(for_=name)[label], h.input(id=name, name=name, value=page.query.get(name, ""))]


def filter_choice(page: Page, name: str, label: str, choices: Sequence[tuple[str, str]]) -> h.Node:
    """A choice of a filter, each (value, what is shown); the first one counts if none is chosen."""
    chosen = page.query.get(name, "")
    return h.label[
        f"{label} ",
        h.select(name=name)[
            [h.option(value=value, selected=value == chosen)[title] for value, title in choices]
        ],
    ]


def table(
    page: Page,
    name: str,
    columns: Sequence[Column],
    found: Any,
    key: Callable[[Row], str],
    select: str = "",
) -> h.Node:
    """A live table called `name` of `found`: a list of rows, or a page of the API.

    `key` names a row. With `select` each row has a box of this name, for forms around the table.
    """
    rows: list[Row] = found if isinstance(found, list) else found["items"]
    shown = chosen_columns(page, columns)
    kept = _in_kept_order(page, name, rows, key)
    return page.live(
        name,
        None if isinstance(found, list) else _pages(page, found),
        h.div(".wide", tabindex="0", role="region", aria_label=f"Table of {name}")[
            h.table(".list")[
                h.thead[
                    h.tr[
                        select and h.th(scope="col")[h.span(".hidden")["Chosen"]],
                        [_head(page, column) for column in shown],
                    ]
                ],
                h.tbody[[_row(row, is_here, shown, key(row), select) for row, is_here in kept]],
            ]
        ],
        None if kept else h.p(".none")["There are none."],
    )


def chosen_columns(page: Page, columns: Sequence[Column]) -> list[Column]:
    """The columns that the URL picks, or those shown at first."""
    if "columns" not in page.query:
        return [column for column in columns if not column.is_optional]
    names = page.query["columns"].split(",")
    return [column for column in columns if column.title in names] or [columns[0]]


def unsorted(columns: Sequence[Column]) -> list[Column]:
    """The columns for rows that the API gives in one order only."""
    return [replace(column, sort="") for column in columns]


def column_chooser(page: Page, columns: Sequence[Column]) -> h.Element:
    """Links that show and hide columns."""
    shown = [column.title for column in chosen_columns(page, columns)]
    return h.details(".columns-of")[
        h.summary["Columns"],
        h.ul[
            [
                h.li[
                    h.a(
                        href=page.url(columns=",".join(_toggled(shown, column.title))),
                        aria_pressed="true" if column.title in shown else "false",
                        role="button",
                    )[column.title]
                ]
                for column in columns
            ]
        ],
    ]


def state_square(row: Row) -> h.Element:
    """The state of an object, with a square of its colour; its figures, if it has some, behind."""
    state = row.get("state", "")
    words = [str(each) for each in state] if isinstance(state, list) else [str(state)]
    return h.span(class_=["state", words[0]])[", ".join(words)]


def plain_table(
    label: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[h.Node]],
    numbers: Sequence[str] = (),
) -> h.Element:
    """A table in one order; `numbers` are the heads of its columns with figures."""
    classes = ["number" if head in numbers else None for head in heads]
    return h.div(".wide", tabindex="0", role="region", aria_label=label)[
        h.table(".list")[
            h.thead[
                h.tr[
                    [
                        h.th(scope="col", class_=name)[head]
                        for head, name in zip(heads, classes, strict=True)
                    ]
                ]
            ],
            h.tbody[
                [
                    h.tr[[h.td(class_=name)[cell] for cell, name in zip(row, classes, strict=True)]]
                    for row in rows
                ]
            ],
        ]
    ]


def figures_table(caption: str, rows: Sequence[tuple[h.Node, h.Node]]) -> h.Element:
    """A small table of names and values."""
    return h.table(".facts")[
        h.caption[caption],
        h.tbody[[h.tr[h.th(scope="row")[name], h.td[value]] for name, value in rows]],
    ]


def _toggled(names: list[str], name: str) -> list[str]:
    return [each for each in names if each != name] if name in names else [*names, name]


def _number(page: Page, name: str) -> int:
    text = page.query.get(name, "")
    return int(text) if text.isdigit() and len(text) < 9 else 1


def _in_kept_order(
    page: Page, name: str, rows: list[Row], key: Callable[[Row], str]
) -> list[tuple[Row, bool]]:
    """The rows, and whether the list still has each of them on this page."""
    shown = page.sign_in.shown
    place = f"{page.url()} {name}"
    before: list[Row] = shown.pop(place, [])
    if not page.is_refresh:
        kept = [(row, True) for row in rows]
    else:
        by_key = {key(row): row for row in rows}
        kept = [(by_key.pop(key(row), row), key(row) in by_key) for row in before]
        kept += [(row, True) for row in by_key.values()]
    shown[place] = [row for row, _ in kept][: 2 * PAGE_SIZE]
    while len(shown) > _SHOWN_MAX:
        del shown[next(iter(shown))]
    return kept


def _head(page: Page, column: Column) -> h.Element:
    align = "number" if column.is_number else None
    if not column.sort:
        return h.th(scope="col", class_=align)[column.title]
    is_sorted = page.query.get("sort") == column.sort
    is_reversed = is_sorted and page.query.get("sort_reverse") == "true"
    # Figures are wanted largest first.
    reverse = (not is_reversed) if is_sorted else column.is_number
    order = ("descending" if is_reversed else "ascending") if is_sorted else None
    url = page.url(sort=column.sort, sort_reverse=str(reverse).lower(), page=None)
    return h.th(scope="col", class_=align, aria_sort=order)[h.a(href=url)[column.title]]


def _row(row: Row, is_here: bool, columns: list[Column], key: str, select: str) -> h.Element:
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return h.tr(id=f"r{digest}", class_=None if is_here else "gone")[
        select
        and h.td[h.input(type="checkbox", name=select, value=key, aria_label=f"Choose {key}")],
        [
            h.td(class_="number" if column.is_number else None)[column.cell(row)]
            for column in columns
        ],
    ]


def _pages(page: Page, found: dict[str, Any]) -> h.Element:
    at, last = found["page"], found["page_count"]
    return h.nav(".pages", aria_label="Pages of the list")[
        h.span[
            f"{figures.count(found['filtered_count'])} of {figures.count(found['total_count'])}, "
            f"page {at} of {last}"
        ],
        at > 1 and h.a(href=page.url(page=at - 1), rel="prev")["Previous"],
        at < last and h.a(href=page.url(page=at + 1), rel="next")["Next"],
    ]
