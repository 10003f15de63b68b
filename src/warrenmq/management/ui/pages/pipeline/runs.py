"""What pages show of a run of a job: its state, how far it is, how long it takes."""

import time
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.page import Page

Run = dict[str, Any]

_TROUBLE: Final = ("problems", "failed", "interrupted")
# The fields of results that count messages, in the order in which one is shown.
_COUNTS: Final = ("messages", "restored", "published")


def run_place(name: str) -> str:
    """The path of the page of a run."""
    return f"/pipeline/jobs/{path_to(name)}"


def run_link(page: Page, name: str) -> h.Element:
    """A link to the page of a run."""
    return h.a(href=page.link(run_place(name)))[name]


def state_badge(run: Run) -> h.Element:
    """The state of a run in a word, in a colour if somebody should look."""
    return h.span(".badge.bad" if run["state"] in _TROUBLE else ".badge")[run["state"]]


def progress(run: Run) -> str:
    """How far a run is: the step, what is done of it and what there is; nothing once it ended."""
    step = run["progress"]
    if not step or run["ended"]:
        return figures.NONE
    done = figures.count(step["done"])
    whole = "" if step["total"] is None else f" of {figures.count(step['total'])}"
    note = f" ({step['note']})" if step["note"] else ""
    return f"{step['name']}: {done}{whole} {step['unit']}{note}"


def rows(run: Run) -> str:
    """The messages that a run has handled so far, or in all."""
    for name in _COUNTS:
        if name in run["result"]:
            return figures.count(run["result"][name])
    step = run["progress"]
    return figures.count(step["done"] if step and step["unit"] == "messages" else None)


def duration(run: Run) -> str:
    """How long a run took, or takes so far."""
    ended: float = run["ended"] or time.time() * 1000
    return figures.duration(max(0.0, ended - run["started"]))


def report(page: Page, run: Run) -> h.Node:
    """A link to the page that a run has written, if it has written one."""
    if not run["has_report"]:
        return figures.NONE
    return h.a(href=page.link(f"{run_place(run['name'])}/report"))["Open"]
