"""Costs that were measured before, in a JSON file: one list of all brokers' costs.

A thing that is measured again on a broker replaces what the file had of both.
"""

import json
from dataclasses import asdict
from pathlib import Path

from bench.growth.axis import Cost


def load_costs(path: Path) -> dict[str, list[Cost]]:
    """Costs by broker; none when there is no such file."""
    if not path.exists():
        return {}
    costs: dict[str, list[Cost]] = {}
    for entry in json.loads(path.read_text())["costs"]:
        costs.setdefault(entry.pop("broker"), []).append(Cost(**entry))
    return costs


def save_costs(path: Path, costs: dict[str, list[Cost]]) -> None:
    """Write the file anew, one cost a line."""
    lines = [
        json.dumps({"broker": broker, **asdict(cost), "cpu_us": round(cost.cpu_us, 3)})
        for broker, taken in costs.items()
        for cost in taken
    ]
    path.write_text('{"costs": [\n' + ",\n".join(lines) + "\n]}\n")
