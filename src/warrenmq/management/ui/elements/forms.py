"""Forms: fields with labels, and the page that asks before something is destroyed."""

from collections.abc import Sequence

import htpy as h

from warrenmq.management.ui.page import Page


def text_field(
    name: str,
    label: str,
    value: str = "",
    hint: str = "",
    kind: str = "text",
    is_needed: bool = False,
    place: str = "",
) -> h.Element:
    """A line of text with its label; `place` tells fields of one name in a page apart."""
    key = f"{name}-{place}" if place else name
    return h.div(".field")[
        h.label(for_=f"f-{key}")[label],
        h.input(
            id=f"f-{key}",
            name=name,
            type=kind,
            value=value,
            required=is_needed,
            aria_describedby=f"h-{key}" if hint else None,
        ),
        hint and h.small(id=f"h-{key}")[hint],
    ]


def area_field(name: str, label: str, value: str = "", hint: str = "") -> h.Element:
    """Several lines of text with their label."""
    return h.div(".field")[
        h.label(for_=f"f-{name}")[label],
        h.textarea(
            id=f"f-{name}", name=name, rows="6", aria_describedby=f"h-{name}" if hint else None
        )[value],
        hint and h.small(id=f"h-{name}")[hint],
    ]


def choice_field(
    name: str, label: str, choices: Sequence[tuple[str, str]], chosen: str = ""
) -> h.Element:
    """One of several values; each is (value, what is shown)."""
    return h.div(".field")[
        h.label(for_=f"f-{name}")[label],
        h.select(id=f"f-{name}", name=name)[
            [h.option(value=value, selected=value == chosen)[title] for value, title in choices]
        ],
    ]


def box_field(name: str, label: str, is_checked: bool = False) -> h.Element:
    """A box to tick."""
    return h.div(".field.box")[
        h.input(id=f"f-{name}", type="checkbox", name=name, value="true", checked=is_checked),
        h.label(for_=f"f-{name}")[label],
    ]


def form(
    page: Page, path: str, button: str, *fields: h.Node, is_dangerous: bool = False
) -> h.Element:
    """A form that is sent to `path` of this site; the browser comes back with the same query."""
    return h.form(".sheet", action=page.link(path), method="post")[
        fields,
        h.button(".danger" if is_dangerous else ".go", type="submit")[button],
    ]


def folded(title: str, *content: h.Node, is_open: bool = False) -> h.Element:
    """A part that opens when its title is chosen."""
    return h.details(".fold", open=is_open)[h.summary[title], content]


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
