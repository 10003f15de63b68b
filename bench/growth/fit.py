"""Exponents: the slope of cost over size, both as logarithms, and the table of them."""

import math
from collections.abc import Iterable
from typing import Final

from bench.growth.axis import Cost
from bench.table import NO_FIGURE, line

# Costs of all brokers by (axis, operation); each broker's in order of size.
Found = dict[tuple[str, str], dict[str, list[Cost]]]
_BELOW_ALL: Final = -math.inf


def exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """The exponent k of `cost = c * size ** k` that fits best; None for fewer than two points.

    0: a cost that does not depend on the size; 1: a cost that grows as the size does. Points
    without a logarithm, such as messages of 0 bytes, do not count.
    """
    logs = [(math.log(size), math.log(cost)) for size, cost in points if size > 0 and cost > 0]
    if len(logs) < 2:
        return None
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    width = sum((x - mean_x) ** 2 for x, _ in logs)
    if width == 0:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / width


def exponent_of(costs: list[Cost]) -> float | None:
    """The exponent of one operation on one broker."""
    return exponent((float(cost.size), cost.cpu_us) for cost in costs)


def grouped(costs: dict[str, list[Cost]]) -> Found:
    """Costs by operation, of the costs of each broker."""
    found: Found = {}
    for broker, taken in costs.items():
        for cost in taken:
            row = found.setdefault((cost.axis, cost.operation), {})
            row.setdefault(broker, []).append(cost)
    return found


def growth_table(found: Found, brokers: list[str]) -> str:
    """A Markdown table, one line an operation, the highest exponent of the first broker first.

    Of the costs it has those of the smallest and of the largest size.
    """
    head = ["what grows", "operation"]
    for broker in brokers:
        head += [f"{broker}: exponent", f"{broker}: µs at the least and most"]
    lines = [line(head), line(["---", "---", *["---:", "---"] * len(brokers)])]

    def rank(row: tuple[str, str]) -> float:
        slope = exponent_of(found[row].get(brokers[0], []))
        return _BELOW_ALL if slope is None else slope

    for row in sorted(found, key=rank, reverse=True):
        cells = list(row)
        for broker in brokers:
            costs = found[row].get(broker, [])
            slope = exponent_of(costs)
            cells.append(NO_FIGURE if slope is None else f"{slope:+.2f}")
            ends = costs[:1] + costs[1:][-1:]
            shown = [f"{cost.size:,}: {_rounded(cost.cpu_us)}" for cost in ends]
            cells.append(" · ".join(shown) or NO_FIGURE)
        lines.append(line(cells))
    return "\n".join(lines)


def _rounded(value: float) -> str:
    """A figure with three digits that count, as people write it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
