"""`python -m tools.drawings` writes every drawing to docs/pictures."""

from collections.abc import Callable
from pathlib import Path

from tools.drawings import failover, growth, latency, ratios

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
COSTS = ROOT / "bench" / "growth" / "costs.json"
PICTURES = ROOT / "docs" / "pictures"
# How the file of each name is drawn.
DRAWINGS: dict[str, Callable[[], str]] = {
    "benchmarks": lambda: ratios.draw(PAGE.read_text("utf-8")),
    "latency": lambda: latency.draw(PAGE.read_text("utf-8")),
    "growth": lambda: growth.draw(COSTS.read_text("utf-8")),
    "failover": failover.draw,
}


def main() -> None:
    for name, draw in DRAWINGS.items():
        (PICTURES / f"{name}.svg").write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
