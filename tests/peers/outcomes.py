"""Outcomes of a suite's tests, read from JUnit's XML as pytest and node write it."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
# A test without a result in one of the two runs.
MISSING: Final = "missing"


def read_outcomes(path: Path) -> dict[str, str]:
    """The outcome of each test by its name; {} when the suite wrote no results."""
    if not path.exists():
        return {}
    root = ElementTree.parse(path).getroot()
    outcomes: dict[str, str] = {}
    _collect(root, "", outcomes)
    return outcomes


def _collect(element: ElementTree.Element, place: str, outcomes: dict[str, str]) -> None:
    """Add the outcomes below `element`, whose tests are at `place`.

    pytest writes one flat suite and names a class; a test appears twice when its teardown fails as
    well. node nests suites, under several names of elements, and names of different files may be
    the same.
    """
    for child in element:
        if child.tag == "testcase":
            own_class, name, outcome = (
                child.get("classname", ""),
                child.get("name", ""),
                _outcome(child),
            )
            if own_class not in ("", "test"):
                name = f"{own_class}.{name}"
                if outcomes.get(name) != FAILED:
                    outcomes[name] = outcome
            else:
                outcomes[_unused(f"{place}{name}", outcomes)] = outcome
        elif child.get("name") not in (None, "pytest tests", "pytest"):
            _collect(child, f"{place}{child.get('name')} > ", outcomes)
        else:
            _collect(child, place, outcomes)


def _unused(name: str, outcomes: dict[str, str]) -> str:
    """`name`, with a number if it is taken."""
    count = 1
    found = name
    while found in outcomes:
        count += 1
        found = f"{name} ({count})"
    return found


def _outcome(case: ElementTree.Element) -> str:
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return FAILED
    return SKIPPED if "skipped" in tags else PASSED
