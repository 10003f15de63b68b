"""Curves of the table of latencies at paced rates: median and p99 of both brokers."""

import re

from tools.drawings.plot import Points, Scale, axes, curve
from tools.drawings.svg import Picture

BROKERS = (("warren", "warren"), ("other", "RabbitMQ 3.10.8"))
PARTS = (("median", False), ("p99", True))
# Sizes in pixels.
LEFT = 56.0
WIDTH = 640.0
TOP = 40.0
HEIGHT = 220.0
NAMES = 186.0
# Milliseconds.
LOWEST, HIGHEST = 0.01, 100.0


def lines(page: str) -> dict[tuple[str, str], Points]:
    """Points (messages a second, ms) by broker and part, of docs/benchmarks.md."""
    section = page.split("\n## Latency by rate\n")[1].split("\n## ")[0]
    found: dict[tuple[str, str], Points] = {}
    for row in re.findall(r"^\| ([\d,]+ \|.*) \|$", section, re.MULTILINE):
        rate, *cells = (cell.strip() for cell in row.split("|"))
        for (look, _), cell in zip(BROKERS, cells, strict=True):
            for (part, _), value in zip(PARTS, cell.split(", "), strict=True):
                points = found.setdefault((look, part), [])
                points.append((float(rate.replace(",", "")), float(value)))
    return found


def draw(page: str) -> str:
    """The picture: a line for each broker and part, with its name at its end."""
    found = lines(page)
    rates = [rate for rate, _ in found["warren", "median"]]
    picture = Picture()
    title = "Latency from publish to delivery, by messages a second: lower is better"
    picture.text(0, 12, title, look="bold")
    x = Scale(rates[0], rates[-1], LEFT, LEFT + WIDTH)
    y = Scale(LOWEST, HIGHEST, TOP + HEIGHT, TOP)
    axes(picture, x, y, rates, " ms")
    for look, name in BROKERS:
        for part, is_dashed in PARTS:
            points = found[look, part]
            curve(picture, x, y, points, look, is_dashed)
            end = y.place(points[-1][1]) + 4
            picture.text(LEFT + WIDTH + 12, end, f"{name}, {part}", look=look)
    return picture.drawing(LEFT + WIDTH + NAMES, TOP + HEIGHT + 20)
