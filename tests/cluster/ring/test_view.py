"""Views: living members form a circle, and each stands in for the dead ones to its left."""

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.cluster.ring.view import MemberId, View

A, B, C, D = (MemberId(number, name) for number, name in enumerate((b"a", b"b", b"c", b"d"), 1))


def neighbours(view: View) -> list[tuple[MemberId, MemberId, MemberId, list[MemberId]]]:
    return [(each.id, each.left, each.right, each.aliases) for each in view.living.values()]


def test_living_members_form_a_circle() -> None:
    view = View(3, [(A, True), (B, True), (C, True)])
    assert (view.version, view.members) == (3, [A, B, C])
    assert neighbours(view) == [(A, C, B, []), (B, A, C, []), (C, B, A, [])]


def test_a_member_alone_is_its_own_neighbour() -> None:
    assert neighbours(View(1, [(A, True)])) == [(A, A, A, [])]


def test_dead_members_are_aliases_of_the_next_living_one() -> None:
    view = View(6, [(A, True), (B, False), (C, False), (D, True)])
    assert neighbours(view) == [(A, D, D, []), (D, A, A, [B, C])]


def test_a_run_of_dead_members_wraps() -> None:
    view = View(6, [(A, False), (B, True), (C, True), (D, False)])
    assert neighbours(view) == [(B, C, C, [D, A]), (C, B, B, [])]


def test_a_view_without_living_members_has_no_circle() -> None:
    view = View(4, [(A, False), (B, False)])
    assert (view.members, view.living) == ([A, B], {})


@given(st.lists(st.booleans(), max_size=8))
def test_circle_and_aliases_cover_the_members(alive: list[bool]) -> None:
    """Going right from any living member visits all of them; each dead one is one alias."""
    ids = [MemberId(number, b"n%d" % number) for number in range(len(alive))]
    view = View(9, list(zip(ids, alive, strict=True)))
    assert list(view.living) == [id for id, is_alive in zip(ids, alive, strict=True) if is_alive]
    for start in view.living:
        visited = [start]
        while (right := view.living[visited[-1]].right) != start:
            assert view.living[right].left == visited[-1]
            visited.append(right)
        assert sorted(visited) == sorted(view.living)
        # Walking left from a member, its aliases come before its left neighbour.
        place = ids.index(start)
        passed = [ids[(place - step) % len(ids)] for step in range(1, len(ids) + 1)]
        expected = passed[: passed.index(view.living[start].left)]
        assert view.living[start].aliases == expected[::-1]
    dead = [alias for member in view.living.values() for alias in member.aliases]
    if view.living:
        assert sorted(dead) == [id for id, is_alive in zip(ids, alive, strict=True) if not is_alive]
