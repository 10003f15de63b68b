"""The queues and exchanges that a policy would touch if it were saved."""

from collections.abc import Sequence
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.names import exchange_link, queue_link
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.pages.policies.drafts import API_PATH, Draft
from warrenmq.management.ui.pages.policies.keys import NOT_FOR
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import compiled

# Rows of the table of each target.
_ROWS_MAX: Final = 50
# Filters of the API take no heed of case, and policies do.
_CASE: Final = "(?-i)"
_TARGETS: Final = {
    "queues": ("queues",),
    "exchanges": ("exchanges",),
    "all": ("queues", "exchanges"),
}

Policy = dict[str, Any]


async def preview(page: Page, draft: Draft) -> h.Element:
    """The objects in the vhost of `draft` whose names its pattern matches, and who wins there.

    Raises ValueError for a draft that is no policy, and ApiError.
    """
    draft_policy = {**draft.body(), "name": draft.name}
    try:
        compiled(draft.pattern)
    except PatternError as error:
        raise ValueError(f"The pattern cannot be read: {error}") from None
    rows = await page.api.get(f"{API_PATH[draft.kind]}/{path_to(draft.vhost)}")
    others = [row for row in rows if row["name"] != draft.name and _rank(row) < _rank(draft_policy)]
    stronger = sorted(others, key=_rank)
    return h.section(".panel")[
        h.h2["Preview: nothing is saved yet"],
        [
            await _touched(page, draft, draft_policy, stronger, target)
            for target in _TARGETS.get(draft.apply_to, ())
        ],
    ]


async def _touched(
    page: Page, draft: Draft, policy: Policy, stronger: Sequence[Policy], target: str
) -> h.Node:
    """The table of `target`: queues or exchanges."""
    query = {
        "page": 1,
        "page_size": _ROWS_MAX,
        "name": _CASE + draft.pattern,
        "use_regex": "true",
        "columns": "name,type",
    }
    found = await page.api.get(f"{target}/{path_to(draft.vhost)}", query)
    count, rows = found["filtered_count"], found["items"]
    if not rows:
        return h.p[f"The pattern matches none of {figures.count(found['total_count'])} {target}."]
    more = f", the first {len(rows)} of them are shown" if count > len(rows) else ""
    of_all = figures.count(found["total_count"])
    return [
        h.p[f"The pattern matches {figures.count(count)} of {of_all} {target}{more}."],
        h.div(".wide", tabindex="0", role="region", aria_label=f"Preview of {target}")[
            h.table(".list")[
                h.thead[
                    h.tr[
                        h.th(scope="col")[target.capitalize()],
                        h.th(scope="col")["Which policy wins"],
                    ]
                ],
                h.tbody[
                    [
                        h.tr[
                            h.td[_link(page, draft.vhost, row["name"], target)],
                            h.td[_verdict(row, policy, stronger, target)],
                        ]
                        for row in rows
                    ]
                ],
            ]
        ],
    ]


def _link(page: Page, vhost: str, name: str, target: str) -> h.Element:
    link = queue_link if target == "queues" else exchange_link
    return link(page, vhost, name)


def _verdict(row: dict[str, Any], policy: Policy, stronger: Sequence[Policy], target: str) -> str:
    """Whether the policy will be in force for a queue or an exchange, and if not, why."""
    unfit = _unfit_keys(row, policy, target)
    if unfit:
        return f"not this policy: queues of type {row['type']} have no {' and no '.join(unfit)}"
    name = row["name"].encode()
    for other in stronger:
        fits = other["apply-to"] in ("all", target) and not _unfit_keys(row, other, target)
        if fits and compiled(other["pattern"]).is_found_in(name):
            return f"{other['name']} with priority {other['priority']}"
    return "this policy"


def _unfit_keys(row: dict[str, Any], policy: Policy, target: str) -> list[str]:
    """The keys for whose sake a policy does not apply to a queue."""
    if target != "queues":
        return []
    return sorted(NOT_FOR.get(row["type"], frozenset()).intersection(policy["definition"]))


def _rank(policy: Policy) -> tuple[float, str]:
    """The order in which policies win: the highest priority, and of equal ones the first name."""
    return -policy["priority"], policy["name"]
