"""The values that each definition may have on disk: the durable one, and later ones.

A change counts as durable when its author got the answer, or when the group commit that carries it
is on disk. Until then a crash leaves the definition in its old or its new state.
"""

from __future__ import annotations

from typing import Final

from simulator.models.messages import Violation

Key = tuple[object, ...]
# Value of a definition that does not exist.
ABSENT: Final = None


class StoredDefinitions:
    """Definitions by key; `version` counts the changes."""

    def __init__(self) -> None:
        self.version = 0
        # (version, value) of every state that a crash may leave, oldest first.
        self._states: dict[Key, list[tuple[int, object]]] = {}
        # Keys with more than one possible state.
        self._open: dict[Key, None] = {}

    def put(self, key: Key, value: object) -> Key:
        """Set the value of a definition; returns `key`."""
        self.version += 1
        self._states.setdefault(key, [(0, ABSENT)]).append((self.version, value))
        self._open[key] = None
        return key

    def drop(self, key: Key) -> Key:
        """Remove a definition; returns `key`."""
        return self.put(key, ABSENT)

    def knows(self, key: Key) -> bool:
        """Whether the definition exists, durable or not."""
        return key in self._states and self._states[key][-1][1] is not ABSENT

    def committed(self, version: int) -> None:
        """Every change up to `version` is on disk."""
        for key in list(self._open):
            self._settle(key, version)

    def answered(self, keys: list[Key], version: int) -> None:
        """Make changes of `keys` durable up to `version`: their author got the answer."""
        for key in keys:
            if key in self._open:
                self._settle(key, version)

    def restart(self, found: dict[Key, object]) -> None:
        """Take what the disk has after a crash; Violation when a value is not possible."""
        for key in dict.fromkeys([*self._states, *found]):
            value = found.get(key, ABSENT)
            allowed = [state for _, state in self._states.get(key, [(0, ABSENT)])]
            if value not in allowed:
                raise Violation(str(key[0]), f"{key} is {value} after a restart, not {allowed}")
        self._states = {key: [(0, value)] for key, value in found.items()}
        self._open = {}

    def _settle(self, key: Key, version: int) -> None:
        states = self._states[key]
        while len(states) > 1 and states[1][0] <= version:
            del states[0]
        if len(states) > 1:
            return
        del self._open[key]
        if states[0][1] is ABSENT:
            del self._states[key]
