"""Bars of the table of workloads: how many times as fast warren is, and both brokers' latencies."""

import re
from dataclasses import dataclass

from tools.drawings.svg import Picture

ROW = re.compile(
    r"^\| (.+?) \| ([\d,.]+) (msg/s|ms|s) \| ([\d,.]+) \3 \| ([\d.]+) \|", re.MULTILINE
)
# Sizes in pixels.
WIDTH = 880
LABEL_WIDTH = 410
BAR_WIDTH = 300
LINE = 24
BAR = 14


@dataclass(frozen=True)
class Figure:
    """A row of the table: the figures of both brokers, in `unit`, and their ratio."""

    workload: str
    warren: str
    other: str
    unit: str
    ratio: float


def figures(page: str) -> list[Figure]:
    """The rows of the table of workloads, in docs/benchmarks.md."""
    section = page.split("\n## Workloads\n")[1].split("\n## ")[0]
    return [
        Figure(workload, warren, other, unit, float(ratio))
        for workload, warren, unit, other, ratio in ROW.findall(section)
    ]


def draw(page: str) -> str:
    """The picture: ratios of rates and times, then latencies."""
    rows = figures(page)
    ratios = [row for row in rows if row.unit != "ms"]
    latencies = [row for row in rows if row.unit == "ms"]
    picture = Picture()
    y = 12.0

    def bar(label: str, share: float, told: str, look: str) -> None:
        nonlocal y
        length = BAR_WIDTH * share
        picture.text(LABEL_WIDTH - 8, y, label, "end")
        picture.bar(LABEL_WIDTH, y - BAR + 3, length, BAR, look, 2)
        picture.text(LABEL_WIDTH + length + 6, y, told)
        y += LINE

    def head(words: str) -> None:
        nonlocal y
        picture.text(0, y, words, look="bold")
        y += LINE + 4

    head("How many times as fast as RabbitMQ 3.10.8")
    longest = max(row.ratio for row in ratios)
    for row in ratios:
        told = f"{row.ratio:g} ({row.warren} {row.unit})"
        bar(row.workload, row.ratio / longest, told, "warren")
    y += LINE / 2
    head("Latency from publish to delivery, in ms: shorter is better")
    slowest = max(float(row.other) for row in latencies)
    for row in latencies:
        bar(f"{row.workload}, warren", float(row.warren) / slowest, row.warren, "warren")
        bar(f"{row.workload}, RabbitMQ", float(row.other) / slowest, row.other, "other")
    return picture.drawing(WIDTH, y - LINE + 6)
