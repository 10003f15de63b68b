"""The copies of a queue on a circle, in the order in which messages go round."""

import math
from dataclasses import dataclass
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures

_WIDTH: Final = 720
_HEIGHT: Final = 380
_RADIUS_X: Final = 235
_RADIUS_Y: Final = 130
_BOX_WIDTH: Final = 200
_BOX_HEIGHT: Final = 62
_LETTERS_MAX: Final = 26

Status = dict[str, Any]


@dataclass(frozen=True)
class Copy:
    """A copy of a queue: its node, its part, and how far it is, in words and a colour."""

    node: str
    role: str
    state: str
    colour: str
    lag: str


def copies(status: Status) -> list[Copy]:
    """The copies of a queue of the API in the order of the ring, the master first."""
    mirrors = {mirror["node"]: mirror for mirror in status["mirrors"]}
    order = status["ring"] or [status["node"], *mirrors]
    first = order.index(status["node"]) if status["node"] in order else 0
    return [_copy(node, status, mirrors) for node in (*order[first:], *order[:first])]


def _copy(node: str, status: Status, mirrors: dict[str, Status]) -> Copy:
    if node == status["node"]:
        is_down = status["state"] == "down"
        return Copy(node, "master", "down" if is_down else "running", "c5" if is_down else "c3", "")
    mirror = mirrors.get(node)
    if mirror is None:
        return Copy(node, "mirror", "leaves or joins", "c6", "")
    lag = ""
    if mirror["lag_messages"] is not None:
        lag = f"{figures.count(mirror['lag_messages'])} messages behind"
    if mirror["lag_ms"] is not None:
        lag += f", {figures.duration(mirror['lag_ms'])}"
    if not mirror["is_online"]:
        return Copy(node, "mirror", "not reached", "c5", lag)
    if mirror["is_synchronised"]:
        return Copy(node, "mirror", "in sync", "c3", lag)
    if mirror["sync_messages"] is not None:
        done, whole = mirror["sync_messages"], mirror["sync_total"]
        return Copy(node, "mirror", f"{figures.percent(done, whole)} synchronised", "c5", lag)
    return Copy(node, "mirror", "not in sync", "c5", lag)


def ring_picture(status: Status) -> h.Element:
    """The ring of a queue, whose status the API tells."""
    members = copies(status)
    title = "Ring: " + ", ".join([f"{each.node} {each.role} {each.state}" for each in members])
    places = [_place(number, len(members)) for number in range(len(members))]
    return h.div(".wide", tabindex="0", role="region", aria_label="Ring of the copies")[
        h.svg(".picture", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)[
            len(members) > 1 and [_arrow(number, len(members)) for number in range(len(members))],
            [_box(member, x, y) for member, (x, y) in zip(members, places, strict=True)],
            h.text(".axis.middle", x=str(_WIDTH // 2), y=str(_HEIGHT // 2 + 4))[
                f"epoch {status['epoch']}, view {status['version']}"
            ],
        ]
    ]


def _angle(place: float, count: int) -> float:
    """The angle of a place on the circle, clockwise from the top."""
    return 2 * math.pi * place / count - math.pi / 2


def _at(angle: float) -> tuple[float, float]:
    return (
        _WIDTH / 2 + _RADIUS_X * math.cos(angle),
        _HEIGHT / 2 + _RADIUS_Y * math.sin(angle),
    )


def _place(number: int, count: int) -> tuple[float, float]:
    return _at(_angle(number, count))


def _arrow(number: int, count: int) -> h.Node:
    """The arc from a member to its right neighbour, with its head in the middle."""
    x1, y1 = _place(number, count)
    x2, y2 = _place(number + 1, count)
    middle = _angle(number + 0.5, count)
    x, y = _at(middle)
    # Clockwise along the ellipse.
    turn = math.degrees(math.atan2(_RADIUS_Y * math.cos(middle), -_RADIUS_X * math.sin(middle)))
    return [
        h.path(
            ".arrow.bent", d=f"M{x1:.1f} {y1:.1f}A{_RADIUS_X} {_RADIUS_Y} 0 0 1 {x2:.1f} {y2:.1f}"
        ),
        h.polygon(
            ".head-of",
            points="7,0 -5,-5 -5,5",
            transform=f"translate({x:.1f} {y:.1f}) rotate({turn:.0f})",
        ),
    ]


def _box(member: Copy, x: float, y: float) -> h.Node:
    left, top = x - _BOX_WIDTH / 2, y - _BOX_HEIGHT / 2
    name = member.node
    if len(name) > _LETTERS_MAX:
        name = f"{name[: _LETTERS_MAX - 1]}…"
    words = member.state if member.role == "mirror" else f"master, {member.state}"
    return [
        h.rect(
            ".box", x=f"{left:.1f}", y=f"{top:.1f}", width=str(_BOX_WIDTH),
            height=str(_BOX_HEIGHT), rx="8",
        ),
        h.rect(
            class_=["line", member.colour], x=f"{left:.1f}", y=f"{top:.1f}",
            width=str(_BOX_WIDTH), height=str(_BOX_HEIGHT), rx="8",
        ),
        h.text(".name.middle.strong", x=f"{x:.1f}", y=f"{top + 18:.1f}")[name],
        h.text(".name.middle", x=f"{x:.1f}", y=f"{top + 35:.1f}")[words],
        h.text(".axis.middle", x=f"{x:.1f}", y=f"{top + 52:.1f}")[member.lag],
    ]  # fmt: skip
