"""Draw docs/pictures/benchmarks.svg from the table of workloads in docs/benchmarks.md.

    python tools/draw_benchmarks.py

The page is the one place of its figures, so the picture is drawn of the page, and `make docs` draws
it anew. Never edit the picture.
"""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
TARGET = ROOT / "docs" / "pictures" / "benchmarks.svg"
ROW = re.compile(
    r"^\| (.+?) \| ([\d,.]+) (msg/s|ms|s) \| ([\d,.]+) \3 \| ([\d.]+) \|", re.MULTILINE
)

# Sizes in pixels.
WIDTH = 890
LABEL_WIDTH = 410
BAR_WIDTH = 300
LINE = 24
BAR = 14
TITLE = 46
# Colours that can be read on white and on black.
WARREN = "#2a78d6"
OTHER = "#9a9a96"
TEXT = "#7a7a76"
FONT = "font-family='system-ui, sans-serif' font-size='13'"


@dataclass(frozen=True)
class Figure:
    """A row of the table: the figures of both brokers, in `unit`, and their ratio."""

    workload: str
    warren: str
    other: str
    unit: str
    ratio: float


def figures(page: str) -> list[Figure]:
    """The rows of the table of workloads."""
    section = page.split("\n## Workloads\n")[1].split("\n## ")[0]
    return [
        Figure(workload, warren, other, unit, float(ratio))
        for workload, warren, unit, other, ratio in ROW.findall(section)
    ]


def text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' {FONT} fill='{TEXT}' text-anchor='{anchor}' "
        f"font-weight='{weight}'>{escape(words)}</text>"
    )


def bar(y: float, length: float, colour: str) -> str:
    return (
        f"<rect x='{LABEL_WIDTH}' y='{y - BAR + 2:g}' width='{length:.1f}' height='{BAR}' "
        f"rx='2' fill='{colour}'/>"
    )


def drawing(rows: list[Figure]) -> str:
    """The picture as SVG: ratios of rates and times, then latencies of both brokers."""
    ratios = [row for row in rows if row.unit != "ms"]
    latencies = [row for row in rows if row.unit == "ms"]
    parts = [text(0, 20, "How many times as fast as RabbitMQ 3.10.8", weight="bold")]
    y = TITLE + 0.0
    longest = max(row.ratio for row in ratios)
    for row in ratios:
        length = BAR_WIDTH * row.ratio / longest
        parts.append(text(LABEL_WIDTH - 8, y, row.workload, "end"))
        parts.append(bar(y, length, WARREN))
        told = f"{row.ratio:g} ({row.warren} {row.unit})"
        parts.append(text(LABEL_WIDTH + length + 6, y, told))
        y += LINE
    y += LINE
    parts.append(text(0, y - LINE / 2, "Latency from publish to delivery, in ms", weight="bold"))
    y += TITLE - LINE
    slowest = max(float(row.other) for row in latencies)
    for row in latencies:
        for broker, told, colour in (
            ("warren", row.warren, WARREN),
            ("RabbitMQ", row.other, OTHER),
        ):
            length = BAR_WIDTH * float(told) / slowest
            parts.append(text(LABEL_WIDTH - 8, y, f"{row.workload}, {broker}", "end"))
            parts.append(bar(y, length, colour))
            parts.append(text(LABEL_WIDTH + length + 6, y, told))
            y += LINE
    height = y - LINE / 2
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:g}' role='img'>"
    return "\n".join([head, *parts, "</svg>", ""])


def main() -> None:
    TARGET.write_text(drawing(figures(PAGE.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
