"""Which tests may run side by side (`pytest -n 4`), and which begin.

A file's tests stay in one process, so that what its fixtures start is started once. So do all that share the one Spark
session or the one RabbitMQ of a run. What takes longest begins, or one process would be alone with it at the end.
"""

import pytest

# Fixtures that a run has once, with the tests that use them in one process; the longest first.
SHARED = ("spark", "rabbitmq")


def family_of(item: pytest.Item) -> str:
    """What `item` must share a process with."""
    fixtures = getattr(item, "fixturenames", ())
    return next((name for name in SHARED if name in fixtures), item.nodeid.partition("::")[0])


def is_long(item: pytest.Item) -> bool:
    """Does it take seconds?"""
    return any(item.get_closest_marker(name) for name in ("slow", "kill", "spark"))


def arrange(items: list[pytest.Item]) -> None:
    """Put `items` in the order in which they begin, and tell the scheduler of pytest-xdist which stay together."""
    long_families = {family_of(item) for item in items if is_long(item)}

    def rank(item: pytest.Item) -> int:
        family = family_of(item)
        return SHARED.index(family) if family in SHARED else len(SHARED) + (family not in long_families)

    items.sort(key=rank)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(family_of(item)))
