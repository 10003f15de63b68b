"""One mirrored queue on one node: a master, a mirror, or not in the group now.

    NONE --rejoin--> MIRROR --promote--> MASTER
      ^                |                   |
      +--- dead for the group, or no copy wanted ---+

The record of the group alone decides the role (`on_group`); the replica only proposes. A mirror
proposes itself when its master is gone (`candidacy.py`), and a node with a copy that is no member
any more, as after a restart or a partition, proposes to join again. A master that is deposed
refuses all publishes that wait, becomes a mirror, and is synchronised like any other.

Lower epochs are refused in three places (I5): by the copy, by the mirror of a later epoch, and
here, where ring messages of anybody but the master of the group are answered with NEWER.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from warrenmq.cluster.groups.group import Copy, Group, Member
from warrenmq.cluster.groups.group_proposer import DECIDED, UNANSWERED
from warrenmq.cluster.groups.mirror_policy import UNMIRRORED, MirrorPolicy
from warrenmq.cluster.groups.transitions import (
    FORGOTTEN,
    PROMOTED,
    STOPPED,
    UNSYNCED,
    Transition,
    died,
    erase,
    rejoin,
)
from warrenmq.cluster.mirrors.records import (
    NEWBORN,
    UNKNOWN,
    Heard,
    MirrorRecord,
    NewerRecord,
    RingRecord,
    SyncRecord,
    decode_record,
    encode_record,
)
from warrenmq.cluster.mirrors.replica.candidacy import candidacy
from warrenmq.cluster.mirrors.replica.host import Fence, ReplicaHost, RoleHost
from warrenmq.cluster.mirrors.replica.master_role import MasterRole
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.replica.mirror_role import MirrorRole
from warrenmq.cluster.mirrors.replica.readmission import Readmission
from warrenmq.cluster.mirrors.sync.records import OFFER, TIMED_OUT, decode, encode_cancel
from warrenmq.cluster.ring.member import RingHost, RingMember
from warrenmq.cluster.ring.view import MemberId
from warrenmq.vocabulary.fail_points import fail_point

# Values of `Replica.role`.
NONE: Final = 0
MIRROR: Final = 1
MASTER: Final = 2

# A change that was proposed and not answered is proposed again after this time.
PROPOSE_MS: Final = 10_000
# So is one that may come later; it waits for those of thousands of queues.
LATER_MS: Final = 120_000

_FIRST_EPOCH: Final = 1


class Replica(RingHost, RoleHost):
    """The replica of the queue with this `key` on the node of `me`."""

    def __init__(self, key: int, me: Copy, host: ReplicaHost) -> None:
        self.key: int = key
        self.me: Copy = me
        # None before the first group.
        self.group: Group | None = None
        self.policy: MirrorPolicy = UNMIRRORED
        # This node's member of the group, while it lives.
        self.member: Member | None = None
        self.ring: RingMember | None = None
        self.copy: MirrorCopy | None = None
        self.master: MasterRole | None = None
        self.mirror: MirrorRole | None = None
        self._host: ReplicaHost = host
        # Changes that were proposed and not answered, with the time until which they count.
        self._proposed: dict[object, int] = {}
        # Epochs up to this one have ended, whatever this node has heard of the group.
        self._ended_upto: int = 0
        # This node was the master before the epoch of `group`, so its copy knows all deliveries.
        self._was_home: bool = False
        self._readmission: Readmission = Readmission()
        # The node stops in good order.
        self._is_leaving: bool = False
        # The copy is to be replaced by an empty one when the group does not count on it.
        self._wants_new_copy: bool = False
        # The last attempt of a mirror of this node to be synchronised.
        self._sync_attempt: int = 0
        # How far the copy had followed its masters when it last changed its role in this run.
        self._heard: Heard = NEWBORN

    @property
    def role(self) -> int:
        """NONE, MIRROR or MASTER."""
        if self.master is not None:
            return MASTER
        return NONE if self.mirror is None else MIRROR

    # -- the group ---------------------------------------------------------------------------------

    def on_group(self, group: Group) -> None:
        """Obey the next version of the group; a known one changes nothing."""
        if self.group is not None and group.version <= self.group.version:
            return
        if self.group is None or group.epoch > self.group.epoch:
            before = self.group if self.group is not None else group
            is_home = before.master_node == self.me.node
            self._was_home = is_home and before.reason not in (FORGOTTEN, UNSYNCED)
        self.group = group
        found = group.member_of(self.me.node)
        member = found if found is not None and found.copy == self.me else None
        is_master = member is not None and group.master == member.id
        master = self.master
        if master is not None and (not is_master or master.epoch != group.epoch):
            self._step_down(master)
        mirror = self.mirror
        if mirror is not None and (
            member != self.member or is_master or mirror.epoch != group.epoch
        ):
            self._end_mirror(mirror)
        self._follow_ring(group, member)
        if member is None:
            if self.me.node not in group.recoverable:
                self.copy = None
                self._heard = UNKNOWN
                self._host.drop_copy()
        elif not is_master:
            self._follow_master(group, member)
        elif group.epoch > self._ended_upto:
            self._lead(group)
        self.check()

    def set_policy(self, policy: MirrorPolicy) -> None:
        """Obey another policy of the queue."""
        self.policy = policy
        if self.master is not None:
            self.master.set_policy(policy)

    def close(self) -> None:
        """Let go of the queue, which the cluster has deleted: all that waits is confirmed."""
        if self.master is not None:
            self.master.delete()
        self._let_go()

    def end_group(self) -> None:
        """Let go of the queue, which is mirrored no more.

        If its only copy is here, what waits is confirmed when it is on the disk of this node.
        """
        if self.master is not None:
            self.master.go_on_alone(self._host.now_ms())
        self._let_go()

    def end_run(self) -> None:
        """Let go of the queue, as this run of the node has ended: all that waits is refused."""
        if self.master is not None:
            self.master.step_down()
        self._let_go()

    def _let_go(self) -> None:
        if self.mirror is not None:
            self.mirror.end()
        self.master = self.mirror = self.ring = self.member = None

    def leave(self, done: Callable[[int], None]) -> bool:
        """Propose nothing more, as the node stops in good order.

        A master hands over to a mirror in sync, so that redelivered flags stay exact. Without one
        it lets its group know, so that `ha-promote-on-shutdown` decides who leads then. Returns
        whether it does either; `done` is called when that is decided.
        """
        self._is_leaving = True
        group, member = self.group, self.member
        if self.master is None or group is None or member is None:
            return False
        if not group.mirrors:
            return False
        for mirror in group.synced_mirrors:
            if self._host.is_reachable(mirror.id.node):
                return self.master.hand_over(mirror.id.node, lambda: done(DECIDED))
        if group.synced_mirrors:
            return False
        stopped = partial(died, member=member.id, reason=STOPPED)
        self.propose("stopped", stopped, done)
        return True

    def _follow_ring(self, group: Group, member: Member | None) -> None:
        if member is None:
            self.ring = None
            if self.member is not None:
                self._readmission.buried(self._host.now_ms())
        elif self.ring is None or self.ring.me != member.id:
            self.ring = RingMember(member.id, self)
            self._readmission.joined(self._host.now_ms())
        self.member = member
        if self.ring is not None:
            self.ring.on_view(group.version, [(each.id, each.is_alive) for each in group.members])
            self._host.wake()

    def _follow_master(self, group: Group, member: Member) -> None:
        if self.mirror is not None:
            if self._wants_new_copy:
                self.begin_anew()
            return
        self._begin_mirror(self._open_copy(), group.epoch, member.copy in group.sync)

    def _begin_mirror(self, copy: MirrorCopy, epoch: int, is_in_sync: bool) -> None:
        now_ms = self._host.now_ms()
        mirror = MirrorRole(copy, epoch, is_in_sync, self._heard, self, now_ms, self._sync_attempt)
        self.mirror = mirror
        if mirror.marks.has_failed:
            # Its disk has failed since the last mirror ended.
            self.begin_anew()
        elif self.ring is not None and self.ring.is_joined:
            mirror.joined(now_ms)

    def _end_mirror(self, mirror: MirrorRole) -> None:
        mirror.end()
        self._heard = mirror.heard
        self._sync_attempt = mirror.attempt
        self.mirror = None

    def _lead(self, group: Group) -> None:
        if self.master is not None:
            self.master.follow(group)
        else:
            self._open_copy().when_ready(partial(self._take_over, group))

    def _take_over(self, group: Group) -> None:
        copy, member, newest, ring = self.copy, self.member, self.group, self.ring
        if copy is None or member is None or newest is None or ring is None:
            return
        if self.master is not None or (newest.epoch, newest.master) != (group.epoch, member.id):
            return
        # What waits for the end of a synchronisation comes with it, complete or not.
        copy.applier.stop_sync(self._host.now_ms())
        self._wants_new_copy = False
        fail_point("mirrors.crowned")
        heard = self._heard
        if heard == NEWBORN and newest.epoch > _FIRST_EPOCH:
            # The copy is of an earlier run, which may have heard more.
            heard = UNKNOWN
        is_heir = newest.reason in (PROMOTED, UNSYNCED) and not self._was_home
        self.master = MasterRole(
            copy, newest, member, self.policy, heard, self._host, self, ring, is_heir
        )
        self._host.take_over(copy, self.master.in_sync)
        for node in newest.recoverable:
            self._tell_deposed(newest, node)
        self._host.wake()

    def _step_down(self, master: MasterRole) -> None:
        self._heard = master.heard
        master.step_down()
        self.master = None
        self._host.step_down(master.copy)
        master.copy.reopen()

    def _open_copy(self) -> MirrorCopy:
        if self.copy is None:
            self.copy = self._host.open_copy()
        return self.copy

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Send what this turn has brought; called at the end of a turn that changed something."""
        now_ms = self._host.now_ms()
        if self.mirror is not None:
            self.mirror.advance(now_ms)
        if self.master is not None:
            self.master.end_turn(now_ms)
        if self.ring is not None:
            self.ring.end_turn()

    def check(self) -> None:
        """Propose what has to change: several times a second, and when a node is known dead."""
        group = self.group
        if group is None or self._is_leaving:
            return
        if self.master is not None:
            self.master.check()
        elif self.member is None:
            if self.me.node in group.recoverable:
                self._open_copy().when_ready(lambda: None)
                if self._may_rejoin(group):
                    self.propose("rejoin", lambda newest: rejoin(newest, self.me))
        elif self.copy is not None and group.master != self.member.id:
            chance = candidacy(group, self.member, self.copy, self._host, self.policy)
            if chance is not None:
                fail_point("mirrors.chosen")
                self.propose(("promote", group.version), chance.transition, None, chance.fence)

    def _may_rejoin(self, group: Group) -> bool:
        """Whether to ask for a member: the master hears this node, or there is none.

        A master that lives has given up this node, so without a link to it a member here could
        only depose it.
        """
        if not self._readmission.may_ask(self._host.now_ms()):
            return False
        master = group.master_node
        if group.is_down or master == self.me.node:
            return True
        return self._host.is_reachable(master) or self._host.is_dead(master)

    def propose(
        self,
        subject: object,
        transition: Transition,
        done: Callable[[int], None] | None = None,
        fence: Fence | None = None,
        is_later: bool = False,
    ) -> None:
        now_ms = self._host.now_ms()
        if self._proposed.get(subject, 0) > now_ms:
            return
        until_ms = now_ms + (LATER_MS if is_later else PROPOSE_MS)
        self._proposed[subject] = until_ms

        def answered(outcome: int) -> None:
            if self._proposed.get(subject) == until_ms:
                del self._proposed[subject]
            if done is not None:
                done(outcome)

        self._host.propose(transition, answered, fence, is_later)

    # -- other nodes -------------------------------------------------------------------------------

    def on_record(self, node: bytes, payload: bytes) -> None:
        """Take a record of another node.

        Raises MalformedMirrorRecord or MalformedRingFrame; the link must go down then.
        """
        record = decode_record(payload)
        now_ms = self._host.now_ms()
        if isinstance(record, RingRecord):
            if self.ring is not None:
                self.ring.take_frame(node, record.frame)
                self._host.wake()
        elif self.master is not None:
            if isinstance(record, NewerRecord) and record.epoch > self.master.epoch:
                # The decision comes. What is delivered until then would come again unmarked.
                self._ended_upto = record.epoch - 1
                self._step_down(self.master)
            else:
                self.master.take(node, record, now_ms)
        elif isinstance(record, SyncRecord) and record.kind == OFFER:
            # The sender has heard of this node's promotion first. It offers anew in a moment.
            offer = decode(record)
            self.send(node, encode_cancel(offer.attempt, TIMED_OUT))
        elif self.mirror is not None and self.group is not None:
            if isinstance(record, SyncRecord) and node == self.group.master_node:
                self.mirror.take_sync(record, now_ms)

    def on_link_up(self, node: bytes) -> None:
        """There is a new link to `node`: what was sent on the last one may be lost."""
        if self.ring is not None:
            self.ring.on_link_up(node)
        group = self.group
        if group is None:
            return
        if node == group.master_node:
            self._readmission.link_is_new()
            if self.mirror is not None:
                self.mirror.link_is_new(self._host.now_ms())
            if self._wants_new_copy:
                self.begin_anew()
        self._tell_deposed(group, node)

    def _tell_deposed(self, group: Group, node: bytes) -> None:
        """Tell a node that may not have heard that it is master no more, before it hears a ping."""
        if node in group.recoverable and group.member_of(node) is None:
            newer = encode_record(self.key, NewerRecord(group.epoch))
            self._host.send(node, newer, is_urgent=True)

    def send(self, node: bytes, record: MirrorRecord) -> None:
        self._host.send(node, encode_record(self.key, record))

    # -- the ring ----------------------------------------------------------------------------------

    def send_frame(self, node: bytes, payload: bytes) -> None:
        self.send(node, RingRecord(payload))
        fail_point("mirrors.sent" if self.master is not None else "mirrors.forwarded")

    def on_joined(self, members: list[MemberId]) -> None:
        if self.mirror is not None:
            self.mirror.joined(self._host.now_ms())
        self._host.wake()

    def on_members_changed(self, births: list[MemberId], deaths: list[MemberId]) -> None:
        """Nothing to do: the replica knows the members from the group."""

    def on_message(self, sender: MemberId, payload: bytes) -> None:
        """See RingHost. Raises MalformedMirrorRecord."""
        group = self.group
        if group is None:
            return
        if self.mirror is not None and sender == group.master:
            self.mirror.take(payload, self._host.now_ms())
        elif sender != group.master and sender.node != self.me.node:
            self.send(sender.node, NewerRecord(group.epoch))

    def on_circled(self, count: int) -> None:
        """Nothing to do: a confirm waits for what is durable, not for what has arrived."""
        fail_point("mirrors.circled")

    def on_lost(self) -> None:
        """Nothing to do: the replica leaves the ring before such a view."""

    def erase(self, member: MemberId) -> None:
        """Let the group erase a dead member; ask again while the store does not answer."""

        def answered(outcome: int) -> None:
            if outcome == UNANSWERED and self.ring is not None and not self._is_leaving:
                self.erase(member)

        fail_point("mirrors.flushed")
        self.propose(("erase", member), lambda group: erase(group, member), answered, is_later=True)

    # -- the mirror --------------------------------------------------------------------------------

    def report(self, record: MirrorRecord) -> None:
        group = self.group
        if group is not None and not group.is_down:
            self.send(group.master_node, record)

    def reopen(self) -> None:
        mirror, member, group = self.mirror, self.member, self.group
        if mirror is None or member is None or group is None:
            return
        self._end_mirror(mirror)
        self._heard = UNKNOWN
        mirror.copy.reopen()
        self._begin_mirror(mirror.copy, group.epoch, False)

    def begin_anew(self) -> None:
        mirror, member, group = self.mirror, self.member, self.group
        if mirror is None or member is None or group is None:
            return
        self._wants_new_copy = True
        # The master forgets what this copy has reported, and records it as out of sync.
        self.report(mirror.failure())
        if group.is_synced(self.me.node, self.me.replica_id):
            return
        self._wants_new_copy = False
        self._end_mirror(mirror)
        self.copy = self._host.renew_copy(mirror.copy)
        self._heard = UNKNOWN
        self._begin_mirror(self.copy, group.epoch, False)
