"""Views of a ring: its members at one version of the group, linked into a circle (M46, M47).

A dead member keeps its place in the order until it is erased. A run of dead members belongs to the
next living member to the right, wrapping: they are its aliases.
"""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import i64, mypyc_attr


class MemberId(NamedTuple):
    """Names a member. A node that joins again is a new member.

    `version`: the version of the group that the member joined with; 1 created the group.
    """

    version: int
    node: bytes


@mypyc_attr(native_class=True)
class ViewMember:
    """A living member and its neighbours; alone it is its own neighbour on both sides.

    `aliases`: the dead members directly to its left, in ring order.
    """

    def __init__(self, id: MemberId, aliases: list[MemberId]) -> None:
        self.id: MemberId = id
        self.left: MemberId = id
        self.right: MemberId = id
        self.aliases: list[MemberId] = aliases


@mypyc_attr(native_class=True)
class View:
    """The ring at one version of its group. A view does not change.

    `members`: all members in ring order, dead ones included. `living`: the living ones.
    """

    def __init__(self, version: i64, members: list[tuple[MemberId, bool]]) -> None:
        """`members`: in ring order, each with whether it is alive."""
        self.version: i64 = version
        self.members: list[MemberId] = [id for id, _ in members]
        self.living: dict[MemberId, ViewMember] = {}
        dead: list[MemberId] = []
        circle: list[ViewMember] = []
        for id, is_alive in members:
            if is_alive:
                circle.append(ViewMember(id, dead))
                dead = []
            else:
                dead.append(id)
        if len(circle) > 0:
            # The last run of the order comes before the first one of the circle.
            circle[0].aliases = dead + circle[0].aliases
        left: ViewMember | None = circle[-1] if len(circle) > 0 else None
        for member in circle:
            assert left is not None
            member.left = left.id
            left.right = member.id
            left = member
            self.living[member.id] = member
