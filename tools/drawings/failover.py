"""What happens when the master of a mirrored queue dies, in four frames (docs/cluster.md)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tools.drawings.svg import Picture

# Sizes in pixels.
FRAME_WIDTH: Final = 434
FRAME_HEIGHT: Final = 300
GAP: Final = 12
NODE_WIDTH: Final = 136
NODE_HEIGHT: Final = 46
# Middles of the nodes in a frame, of the clients, and of the record in etcd.
PLACES: Final = {"n1": (217.0, 70.0), "n2": (92.0, 152.0), "n3": (342.0, 152.0)}
CLIENTS: Final = (342.0, 218.0)
RECORD: Final = (101.0, 218.0)
RECORD_WIDTH: Final = 170
# From where to where the arrows between two nodes go: two each, so that both directions have one.
ARROWS: Final = {
    ("n1", "n2"): ((167.0, 93.0), (100.0, 129.0)),
    ("n2", "n1"): ((122.0, 129.0), (189.0, 93.0)),
    ("n2", "n3"): ((160.0, 146.0), (274.0, 146.0)),
    ("n3", "n2"): ((274.0, 160.0), (160.0, 160.0)),
    ("n3", "n1"): ((328.0, 129.0), (256.0, 93.0)),
    ("n1", "n3"): ((262.0, 93.0), (334.0, 129.0)),
}
HEAD: Final = 7.0


@dataclass(frozen=True)
class Node:
    """A node: its role in words, and its look: `warren` leads, `dim` follows, `bad` is dead."""

    name: str
    role: str
    look: str


@dataclass(frozen=True)
class Frame:
    """A frame: heading, nodes, arrows of the ring, the record in etcd, and what clients see."""

    title: str
    nodes: Sequence[Node]
    ring: Sequence[tuple[str, str]]
    record: Sequence[str]
    clients: Sequence[str]
    # A node proposes a change of the record; the record is new.
    proposer: str = ""
    is_new: bool = False
    # From which node to which one a copy gets what it lacks.
    catches_up: tuple[str, str] | None = None


MIRROR: Final = "mirror, in sync"
FRAMES: Final = (
    Frame(
        "Each copy has what is confirmed",
        (Node("n1", "master", "warren"), Node("n2", MIRROR, "dim"), Node("n3", MIRROR, "dim")),
        (("n1", "n2"), ("n2", "n3"), ("n3", "n1")),
        ("etcd: master n1, epoch 7", "in sync: n1, n2, n3"),
        ("A confirm leaves when n1, n2 and n3 have the message,", "on disk if it is persistent."),
    ),
    Frame(
        "The master dies",
        (Node("n1", "killed", "bad"), Node("n2", "oldest mirror", "dim"), Node("n3", MIRROR, "dim")),
        (("n2", "n3"),),
        ("etcd: master n1, epoch 7", "in sync: n1, n2, n3"),
        ("n2 proposes itself. What is published meanwhile waits", "or is nacked: publish it again."),
        proposer="n2",
    ),
    Frame(
        "The oldest mirror in sync takes over",
        (Node("n1", "down", "bad"), Node("n2", "master", "warren"), Node("n3", MIRROR, "dim")),
        (("n2", "n3"), ("n3", "n2")),
        ("etcd: master n2, epoch 8", "in sync: n2, n3"),
        ("Each confirmed message is there. What was not acked", "comes again, marked redelivered."),
        is_new=True,
    ),
    Frame(
        "The old master comes back as a mirror",
        (Node("n1", "mirror, catches up", "good"), Node("n2", "master", "warren"),
         Node("n3", MIRROR, "dim")),
        (("n2", "n3"), ("n3", "n1"), ("n1", "n2")),
        ("etcd: master n2, epoch 8", "in sync: n2, n3, then n1"),
        ("n1 keeps what it has and gets what it lacks, while the",
         "queue is in use. Then confirms wait for n1 again."),
        catches_up=("n2", "n1"),
    ),
)  # fmt: skip


def draw() -> str:
    """The picture."""
    picture = Picture()
    for number, frame in enumerate(FRAMES):
        left = (FRAME_WIDTH + GAP) * (number % 2)
        top = (FRAME_HEIGHT + GAP) * (number // 2)
        picture.open(left, top)
        picture.bar(0, 0, FRAME_WIDTH, FRAME_HEIGHT, "frame", 8)
        picture.text(16, 26, f"{number + 1}. {frame.title}", look="bold mark")
        _frame(picture, frame)
        picture.close()
    return picture.drawing(2 * FRAME_WIDTH + GAP, 2 * FRAME_HEIGHT + GAP)


def _frame(picture: Picture, frame: Frame) -> None:
    for ends in frame.ring:
        _arrow(picture, *ARROWS[ends], "ink")
    if frame.catches_up:
        _arrow(picture, *ARROWS[frame.catches_up], "good")
    for node in frame.nodes:
        _node(picture, node)
    x, y = CLIENTS
    _arrow(picture, (x, y - 16), (x, 176), "ink")
    picture.bar(x - 44, y - 16, 88, 32, "soft", 16)
    picture.text(x, y + 5, "clients", "middle")
    x, y = RECORD
    if frame.proposer:
        middle = PLACES[frame.proposer][0]
        _arrow(picture, (middle, 176), (middle, y - 21), "warren")
    look = "box l-warren" if frame.is_new else "box l-dim"
    picture.bar(x - RECORD_WIDTH / 2, y - 20, RECORD_WIDTH, 40, look, 4)
    for line, words in enumerate(frame.record):
        picture.text(x, y - 3 + 16 * line, words, "middle", "small")
    for line, words in enumerate(frame.clients):
        picture.text(16, 262 + 19 * line, words)


def _node(picture: Picture, node: Node) -> None:
    x, y = PLACES[node.name]
    look = "node-warren" if node.look == "warren" else f"box l-{node.look}"
    dash = " dash" if node.look == "bad" else ""
    picture.bar(x - NODE_WIDTH / 2, y - NODE_HEIGHT / 2, NODE_WIDTH, NODE_HEIGHT, look + dash, 6)
    is_dark = node.look == "warren"
    picture.text(x, y - 4, node.name, "middle", "bold" + (" on" if is_dark else ""))
    words = "on small" if is_dark else f"small {node.look if node.look == 'bad' else 'dim'}"
    picture.text(x, y + 14, node.role, "middle", words)


def _arrow(
    picture: Picture, start: tuple[float, float], end: tuple[float, float], look: str
) -> None:
    """A line whose head points to its end."""
    length = math.dist(start, end)
    x, y = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    foot = (end[0] - HEAD * x, end[1] - HEAD * y)
    picture.line([start, foot], f"l-{look}")
    sides = [(foot[0] - 4 * y, foot[1] + 4 * x), (foot[0] + 4 * y, foot[1] - 4 * x)]
    corners = " L".join(f"{each[0]:.1f} {each[1]:.1f}" for each in (end, *sides))
    picture.path(f"M{corners}Z", look)
