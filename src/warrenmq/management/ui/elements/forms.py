"""Forms: fields with labels, and the page that asks before something is destroyed.

A form that was refused is shown again with the reason, and its fields with what was typed.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import htpy as h

from warrenmq.management.ui.answers import BACK, Answer
from warrenmq.management.ui.page import Page

# What the form around a field had when it was sent; None: it has not been sent.
_typed: Final[h.Context[Mapping[str, list[str]] | None]] = h.Context("typed", default=None)


@_typed.consumer
def text_field(
    typed: Mapping[str, list[str]] | None,
    name: str,
    label: str,
    value: str = "",
    hint: str = "",
    kind: str = "text",
    is_needed: bool = False,
    place: str = "",
    completion: str = "",
) -> h.Node:
    """A line of text with its label; `place` tells fields of one name in a page apart.

    `completion`: with what a browser may fill it, as HTML's `autocomplete` has it.
    """
    key = f"{name}-{place}" if place else name
    # A password is typed again.
    shown = value if typed is None or kind == "password" else _first(typed, name)
    return h.div(".field")[
        h.label(for_=f"f-{key}")[label],
        h.input(
            id=f"f-{key}",
            name=name,
            type=kind,
            value=shown,
            required=is_needed,
            autocomplete=completion or None,
            aria_describedby=f"h-{key}" if hint else None,
        ),
        hint and h.small(id=f"h-{key}")[hint],
    ]


@_typed.consumer
def area_field(
    typed: Mapping[str, list[str]] | None, name: str, label: str, value: str = "", hint: str = ""
) -> h.Node:
    """Several lines of text with their label."""
    return h.div(".field")[
        h.label(for_=f"f-{name}")[label],
        h.textarea(
            id=f"f-{name}", name=name, rows="6", aria_describedby=f"h-{name}" if hint else None
        )[value if typed is None else _first(typed, name)],
        hint and h.small(id=f"h-{name}")[hint],
    ]


@_typed.consumer
def choice_field(
    typed: Mapping[str, list[str]] | None,
    name: str,
    label: str,
    choices: Sequence[tuple[str, str]],
    chosen: str = "",
) -> h.Node:
    """One of several values; each is (value, what is shown)."""
    selected = chosen if typed is None else _first(typed, name)
    return h.div(".field")[
        h.label(for_=f"f-{name}")[label],
        h.select(id=f"f-{name}", name=name)[
            [h.option(value=value, selected=value == selected)[title] for value, title in choices]
        ],
    ]


@_typed.consumer
def box_field(
    typed: Mapping[str, list[str]] | None, name: str, label: str, is_checked: bool = False
) -> h.Node:
    """A box to tick."""
    return h.div(".field.box")[
        h.input(
            id=f"f-{name}",
            type="checkbox",
            name=name,
            value="true",
            checked=is_checked if typed is None else name in typed,
        ),
        h.label(for_=f"f-{name}")[label],
    ]


def form(page: Page, path: str, button: str, *fields: h.Node, is_dangerous: bool = False) -> h.Node:
    """A form that is sent to `path` of this site; the browser comes back with the same query."""
    answer = page.answer_to(path)
    return [
        form_around(
            page,
            path,
            _said(answer),
            _typed.provider(answer.typed if answer else None, fields),
            h.button(".danger" if is_dangerous else ".go", type="submit")[button],
            style="sheet",
        ),
        None if answer is None else answer.below,
    ]


def form_around(
    page: Page, path: str, *content: h.Node, style: str = "", encoding: str = ""
) -> h.Element:
    """A form with fields and buttons of any kind; `encoding` is HTML's `enctype`."""
    return h.form(
        class_=style or None, action=page.link(path), method="post", enctype=encoding or None
    )[h.input(type="hidden", name=BACK, value=page.url()), content]


def button_form(
    page: Page, path: str, button: str, values: Mapping[str, str], label: str = ""
) -> h.Element:
    """A button that sends `values`; `label` tells those who hear it more than the button does."""
    return form_around(
        page,
        path,
        [h.input(type="hidden", name=name, value=value) for name, value in values.items()],
        h.button(type="submit", aria_label=label or None)[button],
    )


@_typed.consumer
def folded(
    typed: Mapping[str, list[str]] | None, title: str, *content: h.Node, is_open: bool = False
) -> h.Node:
    """A part that opens when its title is chosen; in a form that was sent, it is open."""
    return h.details(".fold", open=is_open or typed is not None)[h.summary[title], content]


def folded_form(
    page: Page,
    title: str,
    path: str,
    button: str,
    *fields: h.Node,
    is_open: bool = False,
    is_dangerous: bool = False,
) -> h.Node:
    """A form that opens when its title is chosen."""
    shown = form(page, path, button, *fields, is_dangerous=is_dangerous)
    return folded(title, shown, is_open=is_open or page.is_answered(path))


def confirmation(
    page: Page, path: str, question: str, name: str, button: str, *fields: h.Node
) -> h.Element:
    """Asks for the name of what is to be destroyed; the form's field is `confirmed`."""
    return h.section(".confirm")[
        h.p[question],
        form(
            page,
            path,
            button,
            fields,
            text_field("confirmed", f"Type {name} to go on", is_needed=True),
            is_dangerous=True,
        ),
    ]


def _first(typed: Mapping[str, list[str]], name: str) -> str:
    return next(iter(typed.get(name, ())), "")


def _said(answer: Answer | None) -> h.Node:
    if answer is None:
        return None
    if answer.is_alarm:
        return h.p(".alarm", role="alert")[answer.said]
    return h.p(".said", role="status")[answer.said]
