"""Copies and groups by short names, for tests."""

from warrenmq.cluster.groups.group import Copy, Group, Member
from warrenmq.cluster.groups.transitions import Mastership, create


def copy(node: bytes, incarnation: str = "1", replica_id: str = "") -> Copy:
    """A copy on `node`, in its only data directory by default."""
    return Copy(node, replica_id or f"disk of {node.decode()}", incarnation)


def new_group(*nodes: bytes) -> Group:
    """The group of a new queue: all in sync, the first node is master."""
    return create(copy(nodes[0]), [copy(node) for node in nodes[1:]])


def made(group: Group | None) -> Group:
    """The group that a transition has made, which is allowed."""
    assert group is not None
    return group


def member(group: Group, node: bytes) -> Member:
    """The living member on `node`."""
    found = group.member_of(node)
    assert found is not None
    return found


def master_of(group: Group) -> Mastership:
    """The master of the group, as it acts."""
    return Mastership(group.master_node, group.epoch)


def ring(group: Group) -> bytes:
    """The nodes in ring order; those of dead members in lower case, of living ones in upper."""
    return b"".join(
        each.id.node.upper() if each.is_alive else each.id.node for each in group.members
    )


def nodes_of(members: tuple[Member, ...]) -> list[bytes]:
    """The nodes of members."""
    return [each.id.node for each in members]
