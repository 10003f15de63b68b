"""Events about mirrored queues: who leads, which copies came and went, which are in sync."""

from tests.cluster.groups.copies import copy, made, master_of, member, new_group
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.transitions import (
    create,
    died,
    drop,
    in_sync,
    join,
    out_of_sync,
    promote,
    rejoin,
)
from warrenmq.cluster.mirrors.log.group_events import events_of

A, B, C = b"a", b"b", b"c"


def told(before: Group, group: Group | None) -> list[tuple[str, str]]:
    """The event and the copy it is about, of each event that any node tells of a change."""
    found = []
    for node in (A, B, C):
        for event, fields in events_of(b"q", before, made(group), node):
            assert fields["name"] == "q"
            found.append((event.removeprefix("mirror."), fields.get("mirror") or fields["leader"]))
    return found


def test_the_node_of_the_master_tells_what_becomes_of_the_copies() -> None:
    group = new_group(A, B, C)
    by = master_of(group)
    late = made(out_of_sync(group, by, copy(B)))
    assert told(group, late) == [("unsynchronised", "b")]
    assert told(late, in_sync(late, by, copy(B))) == [("synchronised", "b")]
    assert told(group, drop(group, by, B)) == [("removed", "b")]
    alone = create(copy(A))
    assert told(alone, join(alone, copy(B))) == [("added", "b")]


def test_a_promoted_mirror_is_not_told_as_gone() -> None:
    group = new_group(A, B, C)
    dead = made(died(group, group.master))
    assert told(group, dead) == []
    promoted = made(promote(dead, member(dead, B).id, 0, {B, C}))
    assert told(dead, promoted) == told(group, promoted) == [("promoted", "b")]
    assert ("added", "a") in told(promoted, rejoin(promoted, copy(A, "2")))
