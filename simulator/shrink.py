"""Makes a failing history as short as possible, and tells its story.

Operations are left out, large pieces first, as long as the history still fails in the same way;
then the values of the remaining operations are replaced with plain ones. The failure must keep its
kind, so that one bug does not become another.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.many_histories import shortened
from simulator.models.messages import Violation
from simulator.operations import FIELDS, History, Operation
from simulator.simulated.node_parts import NodeParts
from simulator.simulation import Simulation

# Runs of the history that shrinking may take.
RUNS_MAX = 3000
# Plain values by name; a value is replaced with its plain one if the history still fails.
_PLAIN: dict[str, int] = {
    "count": 1, "multiple": 0, "delivery": 0, "size": 4, "expiration_ms": 0, "ttl_ms": 0, "clock_jump_ms": 0,
    "recovery_crashes": 0, "times": 1, "after": 0, "channel": 0, "queue": 0,
}  # fmt: skip


class Shrinker:
    """Shrinks one history."""

    def __init__(self, history: History, kind: str, node_parts: NodeParts | None = None) -> None:
        self.history = history
        self._parts = node_parts
        self._kind = kind
        self._runs = 0

    def shrink(self) -> History:
        """Shrink the history; returns the shortest failing one that was found."""
        shortened(self.history.operations, self._fails, RUNS_MAX)
        self._simplify()
        return self.history

    def _fails(self, operations: tuple[Operation, ...]) -> bool:
        self._runs += 1
        history = replace(self.history, operations=operations)
        violation = Simulation(history, None, self._parts).run()
        if violation is None or violation.kind != self._kind:
            return False
        self.history = history
        return True

    def _simplify(self) -> None:
        for index in range(len(self.history.operations)):
            for place, name in enumerate(FIELDS[self.history.operations[index].kind]):
                operation = self.history.operations[index]
                if (
                    name not in _PLAIN
                    or operation.values[place] == _PLAIN[name]
                    or self._runs >= RUNS_MAX
                ):
                    continue
                values = list(operation.values)
                values[place] = _PLAIN[name]
                operations = list(self.history.operations)
                operations[index] = replace(operation, values=tuple(values))
                self._fails(tuple(operations))


def tell(
    history: History, node_parts: NodeParts | None = None
) -> tuple[list[str], Violation | None]:
    """Run a history; returns its story, line by line, and the violation that ends it."""
    story = [f"seed {history.seed}, {history.limits}"]
    violation = Simulation(history, story, node_parts).run()
    return story, violation
