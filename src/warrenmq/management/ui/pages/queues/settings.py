"""What applies to a queue: each value, and which argument or policy gave it."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import htpy as h

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.values import shown_value
from warrenmq.management.ui.page import Page

_PREFIX: Final = "x-"
# Of these the lower value counts, whoever gave it; else an argument comes before policies.
_LIMITS: Final = frozenset(
    {"message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"}
)
_ARGUMENT: Final = "the argument"


@dataclass(frozen=True)
class Setting:
    """A value that applies, and who gave it; `argument` and the others are what each one says."""

    name: str
    value: Any
    source: str
    argument: Any
    policy: Any
    operator_policy: Any


async def settings_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """A table of what applies to a queue of the API."""
    vhost = path_to(found["vhost"])
    policies, operator_policies = await asyncio.gather(
        page.api.get(f"policies/{vhost}"), page.api.get(f"operator-policies/{vhost}")
    )
    rows = settings_of(
        found.get("arguments", {}),
        found.get("effective_policy_definition", {}),
        _definition(policies, found.get("policy")),
        _definition(operator_policies, found.get("operator_policy")),
    )
    policy, operator_policy = found.get("policy"), found.get("operator_policy")
    heads = (
        "Setting",
        "Applies",
        "Given by",
        "Argument",
        f"Policy {policy}" if policy else "No policy",
        f"Operator policy {operator_policy}" if operator_policy else "No operator policy",
    )
    return page.live(
        "queue-settings",
        h.div(".wide", tabindex="0", role="region", aria_label="Settings of the queue")[
            h.table(".list")[
                h.thead[h.tr[[h.th(scope="col")[head] for head in heads]]],
                h.tbody[[_row(row) for row in rows]],
            ]
        ],
        None if rows else h.p(".none")["The queue has no arguments, and no policy applies to it."],
        h.p[
            "The lower of two limits counts. Otherwise an argument comes before policies, and of "
            "policies the one with the highest priority applies alone."
        ],
    )


def settings_of(
    arguments: dict[str, Any],
    effective: dict[str, Any],
    policy: dict[str, Any],
    operator_policy: dict[str, Any],
) -> list[Setting]:
    """What applies, by name. `effective`: what both policies together say, in the API's words."""
    declared = {name.removeprefix(_PREFIX): value for name, value in arguments.items()}
    found = []
    for name in sorted({*declared, *policy, *operator_policy}):
        argument, by_policy = declared.get(name), effective.get(name)
        is_lower = name in _LIMITS and argument is not None and _is_below(by_policy, argument)
        if argument is not None and not is_lower:
            value, source = argument, _ARGUMENT
        else:
            value = by_policy
            source = "the policy" if policy.get(name) == value else "the operator policy"
        found.append(
            Setting(name, value, source, argument, policy.get(name), operator_policy.get(name))
        )
    return found


def _is_below(value: Any, other: Any) -> bool:
    return isinstance(value, int) and isinstance(other, int) and value < other


def _definition(policies: list[dict[str, Any]], name: str | None) -> dict[str, Any]:
    """What the policy called `name` says; nothing for None."""
    return next((each["definition"] for each in policies if each["name"] == name), {})


def _row(setting: Setting) -> h.Element:
    said = (setting.argument, setting.policy, setting.operator_policy)
    return h.tr[
        h.th(scope="row")[setting.name],
        h.td[h.b[_shown(setting.value)]],
        h.td[setting.source],
        [h.td[_shown(each)] for each in said],
    ]


def _shown(value: Any) -> str:
    """The value; an empty text, such as the name of the default exchange, with its quotes."""
    if value is None:
        return ""
    return shown_value(value) or '""'
