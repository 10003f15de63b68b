"""The form of a policy: fields, usual keys to click, a preview, and what the API refuses."""

from typing import Annotated, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import (
    choice_field,
    confirmation,
    folded,
    text_field,
)
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.policies.drafts import (
    API_PATH,
    Draft,
    Kind,
    Setting,
    draft_of_form,
    draft_of_policy,
)
from warrenmq.management.ui.pages.policies.keys import STRING, TYPES, USUAL_KEYS
from warrenmq.management.ui.pages.policies.preview import preview

router = APIRouter()

_ONE: Final = "/policies/{kind}/{vhost:segment}/{name:segment}"
_EMPTY: Final = Setting("", "", STRING)
_APPLY_TO: Final = (
    ("all", "Exchanges and queues"),
    ("exchanges", "Exchanges"),
    ("queues", "Queues"),
)


@router.get("/policies/new")
async def new_policy(page: PageOf, kind: Kind = "user") -> Response:
    """The form of a new policy."""
    return await _show(page, Draft(kind, page.vhost or "/"))


@router.get(_ONE)
async def one_policy(page: PageOf, kind: Kind, vhost: str, name: str) -> Response:
    """The form of a policy, and what deletes it."""
    row = await page.api.get(f"{API_PATH[kind]}/{path_to(vhost, name)}")
    return await _show(page, draft_of_policy(kind, row))


@router.post("/policies/new")
@router.post(_ONE)
async def change(page: PageOf) -> Response:
    """Save a policy, show what it would touch, or add a key to the form."""
    fields = await page.form()
    draft = draft_of_form(fields)
    if "add" in fields:
        return await _show(page, draft.with_key(str(fields["add"])))
    try:
        if "preview" in fields:
            return await _show(page, draft, await preview(page, draft))
        path = f"{API_PATH[draft.kind]}/{path_to(draft.vhost, draft.name)}"
        await page.api.put(path, draft.body())
    except (ApiError, ValueError) as error:
        return await _show(page, draft, h.p(".alarm", role="alert")[str(error)], 400)
    return page.go("/policies", f"Policy {draft.name} saved.", tab=draft.kind)


@router.post(f"{_ONE}/delete")
async def delete(
    page: PageOf, kind: Kind, vhost: str, name: str, confirmed: Annotated[str, Form()]
) -> Response:
    """Delete a policy whose name was typed."""
    place = path_to(vhost, name)
    if confirmed != name:
        return page.go(f"/policies/{kind}/{place}", "Not deleted: another name was typed.")
    await page.api.delete(f"{API_PATH[kind]}/{place}")
    return page.go("/policies", f"Policy {name} deleted.", tab=kind)


async def _show(page: Page, draft: Draft, said: h.Node = None, status: int = 200) -> Response:
    """The page with the form; `said` is a preview, or why the policy was not saved."""
    noun = "operator policy" if draft.kind == "operator" else "policy"
    is_new = page.path == "/policies/new"
    title = f"New {noun}" if is_new else f"{noun.capitalize()} {draft.name} in {draft.vhost}"
    vhosts = await page.api.get("vhosts", {"columns": "name"})
    return await page.show(
        title,
        said,
        h.form(".sheet", action=page.link(page.path), method="post")[
            h.input(type="hidden", name="kind", value=draft.kind),
            choice_field(
                "in_vhost",
                "Virtual host",
                [(row["name"], row["name"]) for row in vhosts],
                draft.vhost,
            ),
            text_field("name", "Name", draft.name, is_needed=True),
            text_field(
                "pattern",
                "Pattern",
                draft.pattern,
                "A regular expression, looked for anywhere in names; ^ and $ bind it to the ends.",
            ),
            choice_field("apply_to", "Apply to", _APPLY_TO, draft.apply_to),
            text_field(
                "priority",
                "Priority",
                draft.priority,
                "The policy with the highest one applies, and no other of its kind.",
            ),
            _definition(draft),
            h.div(".bar")[
                h.button(type="submit", name="preview", value="1")["Preview what it touches"],
                h.button(".go", type="submit", name="save", value="1")["Save"],
            ],
            _usual_keys(draft.kind),
        ],
        None if is_new else _deletion(page, draft.name),
        status=status,
    )


def _definition(draft: Draft) -> h.Element:
    """A row for each setting, and one more."""
    return h.fieldset[
        h.legend["Definition"],
        [
            _setting(place, setting)
            for place, setting in enumerate((*draft.settings, _EMPTY), start=1)
        ],
    ]


def _setting(place: int, setting: Setting) -> h.Element:
    label = setting.key or f"key {place}"
    return h.div(".bar")[
        h.input(
            name="key", value=setting.key, aria_label=f"Key {place}", placeholder="key",
            size="24",
        ),
        h.span["="],
        h.input(
            name="value", value=setting.value, aria_label=f"Value of {label}",
            placeholder="value", size="24",
        ),
        h.select(name="type", aria_label=f"Type of {label}")[
            [h.option(value=each, selected=each == setting.type)[each] for each in TYPES]
        ],
    ]  # fmt: skip


def _usual_keys(kind: Kind) -> h.Element:
    """Buttons that add keys, with what their values say."""
    return h.div[
        h.p(".none")["Usual keys; a click adds one. Lists have commas between their values."],
        [
            (
                h.h2[title],
                h.ul(".values.keys")[
                    [
                        h.li[
                            h.button(
                                type="submit", name="add", value=key.name, formnovalidate=True
                            )[key.name],
                            f" ({key.type}) {key.meaning}",
                        ]
                        for key in keys
                        if key.is_limit or kind == "user"
                    ]
                ],
            )
            for title, keys in USUAL_KEYS
            if kind == "user" or any([key.is_limit for key in keys])
        ],
    ]


def _deletion(page: Page, name: str) -> h.Node:
    path = f"{page.path}/delete"
    return folded(
        "Delete this policy",
        confirmation(
            page,
            path,
            "Queues and exchanges of this policy take the next one that matches, or none.",
            name,
            "Delete",
        ),
        is_open=page.is_answered(path),
    )
