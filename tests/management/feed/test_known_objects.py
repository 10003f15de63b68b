"""A sink is told of each object that is gone, whatever becomes of the session or the node."""

from warrenmq.admin.protocol.changes import ChangedObject, Changes
from warrenmq.management.feed.known_objects import KnownObjects


def answer(
    *ids: int,
    gone: tuple[int, ...] = (),
    has_more: bool = False,
    is_first: bool = False,
    started_ms: int = 1,
) -> Changes:
    changed = [ChangedObject(each, "/", f"q{each}", [], []) for each in ids]
    return Changes(started_ms, 5, changed, list(gone), has_more, is_first)


def told(known: KnownObjects, changes: Changes) -> list[tuple[list[int], list[int]]]:
    """The ids of changed and of gone objects, in one answer after another."""
    return [([one.id for one in each.changed], each.gone) for each in known.completed(changes)]


def test_a_new_session_shows_what_is_gone() -> None:
    known = KnownObjects()
    assert told(known, answer(1, 2, has_more=True, is_first=True)) == [([1, 2], [])]
    assert told(known, answer(3, 4, is_first=True)) == [([3, 4], [])]
    assert told(known, answer(5, gone=(1,))) == [([5], [1])]
    known.begin_session()
    assert told(known, answer(2, 3, has_more=True, is_first=True)) == [([2, 3], [])]
    assert told(known, answer(6, is_first=True)) == [([6], [4, 5])]


def test_a_session_that_ends_in_its_first_tick_hides_nothing() -> None:
    known = KnownObjects()
    told(known, answer(1, 2, 3, is_first=True))
    known.begin_session()
    told(known, answer(1, 2, has_more=True, is_first=True))
    known.begin_session()
    assert told(known, answer(1, has_more=True, is_first=True)) == [([1], [])]
    assert told(known, answer(is_first=True)) == [([], [2, 3])]


def test_a_node_that_begins_anew_unasked_shows_what_is_gone() -> None:
    known = KnownObjects()
    told(known, answer(1, 2, is_first=True))
    assert told(known, answer(2, is_first=True)) == [([2], [1])]


def test_a_node_that_has_started_again_has_new_objects() -> None:
    known = KnownObjects()
    told(known, answer(1, 2, is_first=True))
    assert told(known, answer(2, is_first=True, started_ms=2)) == [([], [1, 2]), ([2], [])]
    assert told(known, answer(gone=(2,), started_ms=2)) == [([], [2])]
