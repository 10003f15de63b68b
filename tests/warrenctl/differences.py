"""Calls whose output differs from RabbitMQ's on purpose; docs/differences.md says why."""

from enum import Enum
from typing import Final


class Difference(Enum):
    """How much of a call's result differs."""

    NONE = "nothing"
    # The exit code is RabbitMQ's.
    TEXT = "text"
    ALL = "text and exit code"


DIFFERENCES: Final[dict[str, dict[str, Difference]]] = {}
