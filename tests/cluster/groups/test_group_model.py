"""Any order of changes, deaths, restarts and cuts keeps every confirmed message (I1-I6).

The model has the messages of each copy, as disks and memories have them. A master confirms what all
copies in sync have; who becomes master must have what was confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.cluster.groups.copies import made, master_of
from warrenmq.cluster.groups.group import (
    Copy,
    Group,
    Member,
    decode_group,
    encode_group,
    fault_of,
)
from warrenmq.cluster.groups.succession import (
    fenced_nodes,
    is_only_complete_copy,
    successor,
    unsynced_successor,
)
from warrenmq.cluster.groups.transitions import (
    create,
    died,
    drop,
    erase,
    forget_node,
    in_sync,
    join,
    out_of_sync,
    promote,
    promote_unsafe,
    rejoin,
    transfer,
)

NODES = (b"a", b"b", b"c", b"d")
nodes = st.sampled_from(NODES)


@dataclass
class Node:
    """A node, its copy and the group as it knows it; `seen` is old while the node is cut off."""

    copy: Copy
    is_running: bool = True
    is_cut: bool = False
    persistent: set[int] = field(default_factory=set)
    transient: set[int] = field(default_factory=set)
    # Published by this node as master, and not confirmed.
    waiting: set[int] = field(default_factory=set)
    seen: Group | None = None

    @property
    def messages(self) -> set[int]:
        return self.persistent | self.transient

    def add(self, message: int) -> None:
        (self.transient if message % 2 else self.persistent).add(message)

    def clear(self) -> None:
        self.persistent, self.transient = set(), set()

    def restart(self) -> None:
        self.copy = Copy(self.copy.node, self.copy.replica_id, str(int(self.copy.incarnation) + 1))
        self.transient, self.waiting = set(), set()


class GroupMachine(RuleBasedStateMachine):
    """A mirrored queue on four nodes. Messages with odd numbers are transient."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {node: Node(Copy(node, f"disk of {node.decode()}", "1")) for node in NODES}
        self.confirmed: set[int] = set()
        self.next_message = 0
        self.next_disk = 0
        self.confirmed_epoch = 0
        self.group: Group

    @initialize(count=st.integers(1, 4))
    def declare(self, count: int) -> None:
        copies = [self.nodes[node].copy for node in NODES[:count]]
        self.group = create(copies[0], copies[1:])
        self.tell()

    # -- what the nodes do -------------------------------------------------------------------------

    def tell(self) -> None:
        for node in self.nodes.values():
            if node.is_running and not node.is_cut:
                node.seen = self.group

    def commit(self, group: Group | None) -> bool:
        """Write the changed group, if the change was allowed."""
        if group is None:
            return False
        old = self.group
        assert fault_of(group) == ""
        assert decode_group(encode_group(group)) == group
        assert group.version > old.version
        assert group.epoch - old.epoch == (1 if group.master != old.master else 0)
        self.group = group
        self.tell()
        return True

    def is_present(self, member: Member) -> bool:
        """Whether the member is that of a running node that is not cut off."""
        node = self.nodes[member.id.node]
        return node.is_running and not node.is_cut and node.copy == member.copy

    @property
    def reachable(self) -> list[bytes]:
        return [member.id.node for member in self.group.living if self.is_present(member)]

    @property
    def master(self) -> Node | None:
        member = self.group.master_member
        if member is None or not self.is_present(member):
            return None
        return self.nodes[member.id.node]

    @property
    def next_seq(self) -> int:
        return 100 * self.group.epoch

    def crown(self) -> None:
        """Start an epoch: publishers hear no more of what they published before."""
        for node in self.nodes.values():
            if not node.is_cut:
                node.waiting = set()

    # -- messages ----------------------------------------------------------------------------------

    @rule(node=nodes)
    def publish(self, node: bytes) -> None:
        """Publish to who believes to be the master; frames of an old epoch reach nobody."""
        master = self.nodes[node]
        group = master.seen
        if not (group and master.is_running and self.believes(master, group)):
            return
        message, self.next_message = self.next_message, self.next_message + 1
        master.add(message)
        master.waiting.add(message)
        if master is self.master:
            for mirror in self.group.mirrors:
                if self.is_present(mirror):
                    self.nodes[mirror.id.node].add(message)

    @rule(node=nodes)
    def confirm(self, node: bytes) -> None:
        """Confirm what all copies in sync have, as far as the master can know (I1)."""
        master = self.nodes[node]
        group = master.seen
        if not (group and master.is_running and self.believes(master, group)):
            return
        if master is not self.master and {each.node for each in group.sync} != {node}:
            return
        parties = [self.nodes[each.node] for each in group.sync]
        if [each.copy.replica_id for each in parties] != [each.replica_id for each in group.sync]:
            return
        done = master.waiting.intersection(*(party.messages for party in parties))
        if done:
            assert group.epoch >= self.confirmed_epoch
            self.confirmed_epoch = group.epoch
        self.confirmed |= done
        master.waiting -= done

    @rule(is_transient=st.booleans())
    def publish_until_confirmed(self, is_transient: bool) -> None:
        """The master waits for no copy whose member is away (I2)."""
        master = self.master
        if master is None:
            return
        present = {member.copy for member in self.group.living if self.is_present(member)}
        for copy in self.group.sync:
            if copy not in present:
                assert self.commit(out_of_sync(self.group, master_of(self.group), copy))
        self.next_message += (self.next_message + is_transient) % 2
        message = self.next_message
        self.publish(master.copy.node)
        self.confirm(master.copy.node)
        assert message in self.confirmed

    @staticmethod
    def believes(node: Node, group: Group) -> bool:
        member = group.master_member
        return member is not None and member.copy == node.copy

    @rule(node=nodes)
    def synchronise(self, node: bytes) -> None:
        member, master = self.group.member_of(node), self.master
        mirror = self.nodes[node]
        if master is None or member is None or not self.is_present(member) or mirror is master:
            return
        mirror.persistent, mirror.transient = set(master.persistent), set(master.transient)
        self.commit(in_sync(self.group, master_of(self.group), mirror.copy))

    @rule(number=st.integers(0, 3))
    def shrink(self, number: int) -> None:
        copy = self.group.sync[number % len(self.group.sync)]
        if self.master is not None:
            self.commit(out_of_sync(self.group, master_of(self.group), copy))

    # -- nodes -------------------------------------------------------------------------------------

    @rule(node=nodes)
    def stop(self, node: bytes) -> None:
        self.nodes[node].is_running = False

    @rule(node=nodes)
    def start(self, node: bytes) -> None:
        one = self.nodes[node]
        if not one.is_running:
            one.restart()
            one.is_running, one.is_cut = True, False
            self.come_back(one)

    @rule(node=nodes)
    def cut(self, node: bytes) -> None:
        if self.nodes[node].is_running:
            self.nodes[node].is_cut = True

    @rule(node=nodes)
    def mend(self, node: bytes) -> None:
        one = self.nodes[node]
        if one.is_running and one.is_cut:
            one.is_cut = False
            self.come_back(one)

    def come_back(self, node: Node) -> None:
        self.tell()
        if self.group.master_node != node.copy.node:
            node.waiting = set()
        if node.copy.node not in self.group.recoverable:
            node.clear()
            assert rejoin(self.group, node.copy) is None
        else:
            self.commit(rejoin(self.group, node.copy))

    @rule(node=nodes)
    def record_death(self, node: bytes) -> None:
        member = self.group.member_of(node)
        if member is not None and not self.is_present(member):
            assert self.commit(died(self.group, member.id))

    @rule(number=st.integers(0, 7))
    def erase_dead(self, number: int) -> None:
        dead = [member for member in self.group.members if not member.is_alive]
        if dead:
            assert self.commit(erase(self.group, dead[number % len(dead)].id))

    @rule(node=nodes, left=nodes)
    def add(self, node: bytes, left: bytes) -> None:
        one = self.nodes[node]
        if one.is_running and not one.is_cut and node not in self.group.recoverable:
            at = self.group.member_of(left)
            assert self.commit(join(self.group, one.copy, None if at is None else at.id))

    @rule(node=nodes)
    def give_up(self, node: bytes) -> None:
        one = self.nodes[node]
        if self.master is not None and self.commit(drop(self.group, master_of(self.group), node)):
            if one.is_running and not one.is_cut:
                one.clear()

    @rule(node=nodes, is_forced=st.booleans())
    def forget(self, node: bytes, is_forced: bool) -> None:
        """Let a stopped node leave; it comes back with a new directory."""
        one = self.nodes[node]
        if one.is_running:
            return
        is_lost = is_only_complete_copy(self.group, node)
        group = forget_node(self.group, node, is_forced)
        if group is None:
            assert is_lost or node not in self.group.recoverable
            return
        assert is_forced or not is_lost
        self.commit(group)
        if is_lost:
            self.crown()
            self.confirmed &= self.nodes[group.master_node].messages
        one.clear()
        self.next_disk += 1
        one.copy = Copy(node, f"disk {self.next_disk}", one.copy.incarnation)

    # -- the master --------------------------------------------------------------------------------

    @rule()
    def promote(self) -> None:
        member = successor(self.group, self.reachable)
        if not self.group.is_down or member is None:
            return
        is_whole = member.copy in self.group.sync
        master = self.nodes[member.id.node]
        assert self.commit(promote(self.group, member.id, self.next_seq, self.reachable))
        assert {each for each in self.confirmed if each % 2 == 0} <= master.persistent
        if is_whole:
            assert self.confirmed <= master.messages
        self.confirmed &= master.messages
        self.crown()

    @rule(is_cut=st.booleans(), returns=st.booleans())
    def fail_over(self, is_cut: bool, returns: bool) -> None:
        """The master goes, a mirror is promoted if one can be, and the old master may come back."""
        master = self.master
        if master is None:
            return
        node = master.copy.node
        if is_cut:
            self.cut(node)
        else:
            self.stop(node)
        self.record_death(node)
        self.promote()
        if returns:
            (self.mend if is_cut else self.start)(node)

    @rule()
    def promote_unsafe(self) -> None:
        member = unsynced_successor(self.group, self.reachable)
        if not self.group.is_down or member is None:
            return
        if any(self.nodes[node].is_running for node in fenced_nodes(self.group, member)):
            return
        assert self.commit(promote_unsafe(self.group, member.id, self.next_seq, self.reachable))
        self.confirmed &= self.nodes[member.id.node].messages
        self.crown()

    @rule(node=nodes)
    def transfer(self, node: bytes) -> None:
        master, member = self.master, self.group.member_of(node)
        if master is None or member is None or not self.is_present(member):
            return
        to = self.nodes[node]
        is_level = master.messages <= to.messages
        by = master_of(self.group)
        if self.commit(transfer(self.group, by, member.id, self.next_seq, is_level)):
            assert self.confirmed <= to.messages
            self.crown()

    @invariant()
    def the_group_is_sound(self) -> None:
        assert fault_of(self.group) == ""

    @invariant()
    def the_master_has_every_confirmed_message(self) -> None:
        if self.master is not None:
            assert self.confirmed <= self.master.messages

    def teardown(self) -> None:
        """Once all nodes are back, some copy in sync becomes master and all messages are there."""
        if not hasattr(self, "group"):
            return
        for node in self.nodes.values():
            node.is_cut = False
            if not node.is_running:
                self.start(node.copy.node)
        for node in self.nodes.values():
            self.come_back(node)
        self.promote()
        if self.group.is_down:
            # Its only complete copy was in a directory that was forgotten.
            assert not any(
                self.group.is_synced(node.copy.node, node.copy.replica_id)
                for node in self.nodes.values()
            )
        else:
            assert made(self.group).master_member is not None


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40)
