"""The lists of policies and operator policies."""

from typing import Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.lists import filtered_list
from warrenmq.management.ui.elements.tables import Column, Row
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.policies.drafts import API_PATH, Kind

router = APIRouter()

# Who may set policies of a kind.
SETTERS: Final[dict[Kind, str]] = {"user": "policymaker", "operator": "administrator"}
_TABS: Final = (
    ("user", "User policies"),
    ("operator", "Operator policies"),
)


@router.get("/policies")
async def policies(page: PageOf, tab: Kind = "user") -> Response:
    """The page of the policies of one kind."""
    path = f"{API_PATH[tab]}/{path_to(page.vhost)}" if page.vhost else API_PATH[tab]
    may_set = page.has_tag(SETTERS[tab])
    return await page.show(
        "Policies",
        tabs(page, _TABS),
        may_set and h.p[h.a(href=page.link("/policies/new", kind=tab))["Add a policy"]],
        await filtered_list(
            page, "policy", "policies", path, _columns(page, tab if may_set else None), _key
        ),
    )


def _columns(page: Page, kind: Kind | None) -> list[Column]:
    """The columns; names lead to the form if the user may set policies of the `kind`."""

    def name(row: Row) -> h.Node:
        if kind is None:
            return str(row["name"])
        place = path_to(row["vhost"], row["name"])
        return h.a(href=page.link(f"/policies/{kind}/{place}"))[row["name"]]

    return [
        Column("Name", name, "name"),
        Column("Virtual host", lambda row: row["vhost"], "vhost"),
        Column("Pattern", lambda row: h.code[row["pattern"]], "pattern"),
        Column("Apply to", lambda row: row["apply-to"], "apply-to"),
        Column("Definition", lambda row: shown_values(row["definition"])),
        Column("Priority", lambda row: str(row["priority"]), "priority", is_number=True),
    ]


def _key(row: Row) -> str:
    return path_to(row["vhost"], row["name"])
