"""The limits of a vhost: how many connections and queues it may have.

They are the parameter `limits` of the component `vhost-limits`, a JSON object as in RabbitMQ:
`{"max-connections": 100, "max-queues": 50}`. A negative number sets no limit, 0 allows none.
"""

import json
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.metadata import NO_LIMIT
from warrenmq.vocabulary.erlang_text import settings_text, term_text

VHOST_LIMITS: Final = "vhost-limits"

_MAX_CONNECTIONS: Final = "max-connections"
_MAX_QUEUES: Final = "max-queues"
# In the order in which RabbitMQ lists errors.
_KEYS: Final = (_MAX_QUEUES, _MAX_CONNECTIONS)
# Larger numbers mean the same as this one.
_NUMBER_MAX: Final = 1 << 62


def check_limits(value: str) -> None:
    """Check the limits in `value`, JSON text; raises ValueError with RabbitMQ's text."""
    decoded: object = json.loads(value)
    if not isinstance(decoded, dict):
        raise ValueError("Validation failed\n\nlimits should be a JSON object\n")
    limits: dict[str, object] = decoded
    errors: list[str] = []
    unknown = {key: limits[key] for key in limits if key not in _KEYS}
    if len(unknown) > 0:
        errors.append(f"Unrecognised terms {settings_text(unknown)} in limits")
    for key in _KEYS:
        if key in limits and _number(limits[key]) is None:
            errors.append(f"{key} should be a number, actually was {term_text(limits[key])}")
    if len(errors) > 0:
        lines = [f"{error}\n" for error in errors]
        raise ValueError("Validation failed\n\n" + "".join(lines))


class VhostLimits:
    """The limits of one vhost, and how many connections it has."""

    def __init__(self) -> None:
        self.max_connections: i64 = NO_LIMIT
        self.max_queues: i64 = NO_LIMIT
        # Connections of clients that have opened the vhost.
        self.connection_count: i64 = 0

    def put(self, value: str) -> None:
        """Put limits in force that `check_limits` has accepted; they replace all former ones."""
        decoded: object = json.loads(value)
        limits: dict[str, object] = decoded if isinstance(decoded, dict) else {}
        self.max_connections = _limit(limits.get(_MAX_CONNECTIONS))
        self.max_queues = _limit(limits.get(_MAX_QUEUES))

    def clear(self) -> None:
        """Take all limits away."""
        self.max_connections = NO_LIMIT
        self.max_queues = NO_LIMIT


def is_reached(limit: i64, count: i64) -> bool:
    """Whether `limit` allows no more than the `count` there are; a negative one allows all."""
    return limit >= 0 and count >= limit


def _number(value: object) -> int | None:
    """An integer, which JSON's true, false and floating-point numbers are not."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _limit(value: object) -> i64:
    number = _number(value)
    return NO_LIMIT if number is None else max(NO_LIMIT, min(number, _NUMBER_MAX))
