"""Small plots of the kept costs of `python -m bench growth`: CPU time over what grows."""

import json
from collections import defaultdict

from tools.drawings.plot import Points, Scale, axes, curve
from tools.drawings.svg import Picture

# A plot for each of these: what grows, its operation, the title, and what the sizes count.
PLOTS = (
    ("connections", "message of 100 B beside them", "A message", "idle connections"),
    ("queues", "publish to another queue each time", "A publish to any queue", "queues"),
    ("topic-bindings", "publish to one of them", "A publish by topic", "bindings"),
    ("headers-bindings", "publish to one of them", "A publish by headers", "bindings"),
    ("fan-out", "publish, for each copy", "A copy of a publish", "queues of a fanout"),
    ("consumers", "message of 100 B", "A message", "consumers of its queue"),
    ("bytes", "persistent message", "A persistent message", "bytes"),
    ("unacked", "ack in random order", "An ack in random order", "unacked messages"),
    ("depth", "publish 100 B, persistent", "A persistent publish", "messages in the queue"),
    ("depth", "get, without ack", "A get", "messages in the queue"),
    ("priorities", "message of 100 B", "A message", "levels of priority"),
    ("nodes", "persistent message of 1 KiB, all nodes together", "A mirrored message", "copies"),
)
LOOKS = {"warren": "warren", "RabbitMQ": "other"}
# Sizes in pixels.
COLUMNS = 3
PLOT_WIDTH = 220
PLOT_HEIGHT = 110
COLUMN = 300
ROW = 192
TOP = 64


def draw(kept: str) -> str:
    """The picture, of the JSON text of kept costs."""
    costs: dict[tuple[str, str], dict[str, Points]] = defaultdict(lambda: defaultdict(list))
    for cost in json.loads(kept)["costs"]:
        # A size of 0, and a cost that noise has made 0 or less, have no logarithm.
        if cost["size"] > 0 and cost["cpu_us"] > 0:
            row = costs[cost["axis"], cost["operation"]]
            row[cost["broker"]].append((cost["size"], cost["cpu_us"]))
    known = [plot for plot in PLOTS if costs[plot[:2]]]
    picture = Picture()
    picture.text(0, 12, "Broker's CPU time for one operation (µs), as something grows", look="bold")
    for number, (axis, operation, title, counted) in enumerate(known):
        left = 40 + COLUMN * (number % COLUMNS)
        top = TOP + ROW * (number // COLUMNS)
        picture.text(left, top - 12, title)
        _plot(picture, left, top, costs[axis, operation])
        middle = left + PLOT_WIDTH / 2
        picture.text(middle, top + PLOT_HEIGHT + 34, counted, "middle", "dim small")
    x = 640.0
    for broker, look in LOOKS.items():
        picture.line([(x, 8), (x + 30, 8)], f"l-{look}")
        picture.text(x + 38, 12, broker)
        x += 110
    height = TOP + ROW * -(-len(known) // COLUMNS) - 34
    return picture.drawing(40 + COLUMN * (COLUMNS - 1) + PLOT_WIDTH, height)


def _plot(picture: Picture, left: float, top: float, lines: dict[str, Points]) -> None:
    every = [point for points in lines.values() for point in points]
    sizes = sorted({size for size, _ in every})
    values = [value for _, value in every]
    low = _decade(min(values), 0)
    # Two decades at least, so that a line that is nearly level looks so.
    high = max(_decade(max(values), 1), 100 * low)
    x = Scale(sizes[0], max(sizes[-1], 2 * sizes[0]), left, left + PLOT_WIDTH)
    y = Scale(low, high, top + PLOT_HEIGHT, top)
    axes(picture, x, y, _spread(sizes, x))
    for broker, points in sorted(lines.items()):
        curve(picture, x, y, sorted(points), LOOKS[broker], False)


def _decade(value: float, more: int) -> float:
    """The power of ten at or below a value; with `more` = 1, the one above."""
    power = 0
    while 10.0 ** (power + 1) <= value:
        power += 1
    while 10.0**power > value:
        power -= 1
    return float(10.0 ** (power + more))


def _spread(sizes: list[float], x: Scale) -> list[float]:
    """Sizes that are far enough from each other for their numbers."""
    shown: list[float] = []
    for size in sizes:
        if not shown or x.place(size) - x.place(shown[-1]) >= 44:
            shown.append(size)
    return shown
