"""Watches the mirrored queues of a simulated cluster, and records what the checker has to know.

Who is master in which epoch, and when a master confirms, goes into the history as it is. A change
of the master may undo what the last one has done: its deliveries and acks need not wait for the
mirrors. How much, is known exactly here. A master sends its operations in numbered messages,
at the end of each turn and before its clients get any output of that turn, and a mirror knows how
many of them have arrived. So what happened before the first message that the new master has not got
is not undone; what happened later may be.
"""

from __future__ import annotations

from typing import Final

from simulator.checker.facts import NEVER
from simulator.cluster.etcd_model import EtcdModel
from simulator.cluster.member import Member, MemberWatch
from simulator.cluster.recording.moves import SentMessages
from simulator.cluster.recording.recording import WINDOW_MS, Recording, life_name
from simulator.models.messages import Violation
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.mirrors.place import MirrorPlace
from warrenmq.cluster.mirrors.replica.mirror_role import MirrorRole
from warrenmq.cluster.mirrors.sync.target import IN_SYNC

_MS_US: Final = 1000


class _Epoch(SentMessages):
    """A master: what it has sent, and up to which message it has confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed_upto = 0


class _Copy:
    """A node's copy of a queue: complete up to the message `received` of `epoch`."""

    def __init__(self) -> None:
        self.epoch = 1
        self.received = 0
        # It has been synchronised since it was complete, so it may have messages without receipts.
        self.is_partial = False
        # Messages that it has handed out as a master, in this run of its node.
        self.delivered_count = 0


class MirrorWatch(MemberWatch):
    """Watches all nodes of the cluster of `model`."""

    def __init__(self, recording: Recording, model: EtcdModel) -> None:
        self._recording = recording
        self._reigns = recording.reigns
        self._model = model
        # A policy lets copies lead that are not in sync.
        self.has_unsafe_policy = False
        # By queue and epoch.
        self._epochs: dict[tuple[str, int], _Epoch] = {}
        # By queue and node.
        self._copies: dict[tuple[str, str], _Copy] = {}
        # When each node has crashed last.
        self._crashed_us: dict[str, int] = {}
        # Mirrored queues whose node has crashed, by node.
        self._crashed: dict[str, set[str]] = {}

    # -- nodes -------------------------------------------------------------------------------------

    def crashed(self, name: str) -> None:
        """A node has crashed."""
        self._crashed_us[name] = self._recording.at_us
        self._reigns.note(name, False, self._recording.at_us)
        self._crashed[name] = {life_name(put.name, put.birth) for put in self._model.load().queues}

    def starts(self, name: str) -> None:
        """A node starts. Queues that are mirrored no more have no copy but the one that it has."""
        known = self._crashed.pop(name, set())
        for put in self._model.load().queues:
            life = life_name(put.name, put.birth)
            if put.node == name.encode() and not put.group and life in known:
                self._recording.forgotten(life, not put.durable, self._crashed_us.get(name, 0))

    def note_well(self, name: str, is_well: bool) -> None:
        """Note whether a node is well, as `Reigns` has it."""
        self._reigns.note(name, is_well, self._recording.at_us)

    def turn_ends(self, member: Member) -> None:
        """See MemberWatch."""
        self._reigns.follow(self._recording.at_us)
        for place in member.mirroring.replicas.places.values():
            life = life_name(place.name, place.birth)
            replica = place.replica
            if replica.master is not None:
                self._look_at_master(member.name, life, place)
            elif replica.mirror is not None:
                copy = self._copy(life, member.name)
                if _is_complete(replica.mirror):
                    copy.is_partial = False
                    copy.epoch, copy.received = replica.mirror.epoch, replica.mirror.received_upto
                elif replica.mirror.target is not None:
                    copy.is_partial = True

    def _copy(self, life: str, node: str) -> _Copy:
        return self._copies.setdefault((life, node), _Copy())

    def _look_at_master(self, node: str, life: str, place: MirrorPlace) -> None:
        master = place.replica.master
        assert master is not None
        epoch = self._epochs.get((life, master.epoch))
        if epoch is None:
            self._on_promoted(node, life, place, master.epoch)
            epoch = self._epochs[life, master.epoch] = _Epoch()
        while len(epoch.sent_us) < master.feed.taken_count:
            epoch.sent_us.append(self._recording.at_us)
        copy = self._copy(life, node)
        copy.epoch, copy.received = master.epoch, int(master.feed.taken_count)
        count = sum(int(each.counters.delivered) for each in master.copy.queue.backings())
        if count != copy.delivered_count:
            if count > copy.delivered_count:
                self._reigns.hands_out(life, master.epoch, self._recording.now_ms)
            copy.delivered_count = count
        if master.in_sync.confirmed_upto > epoch.confirmed_upto:
            epoch.confirmed_upto = master.in_sync.confirmed_upto
            self._recording.confirmed_in(life, master.epoch, node)

    # -- masters -----------------------------------------------------------------------------------

    def _on_promoted(self, node: str, life: str, place: MirrorPlace, epoch: int) -> None:
        self._recording.leads(life, epoch, node)
        copy = self._copy(life, node)
        if copy.is_partial:
            copy.is_partial = False
            self._recording.promises.promoted_partial(life, self._recording.at_us)
        before = self._group_before(place, epoch)
        if before is None:
            return
        own = place.replica.me
        forgotten_us = NEVER
        is_unsafe = not before.is_synced(own.node, own.replica_id)
        if own not in before.sync:
            # The copy has only the messages that its disk kept of an earlier run (I6).
            crashed_us = self._crashed_us.get(node, 0)
            forgotten_us = crashed_us - WINDOW_MS * _MS_US
            self._recording.forgotten(life, not place.put.durable, crashed_us)
            if is_unsafe:
                self._check_unsafe(node, life, before, epoch)
                self._recording.promoted_unsafely(life, epoch)
                forgotten_us = 0
        self._recording.moved(life, self._heard(life, node, epoch), forgotten_us, is_unsafe)

    def _check_unsafe(self, node: str, life: str, before: Group, epoch: int) -> None:
        """Violation unless a policy allows the promotion, and no complete copy's node ran."""
        if not self.has_unsafe_policy:
            raise Violation("unsynced", f"{node} leads {life}, and its copy was not in sync")
        revision = self._revision_of(life, epoch)
        running = self._model.running_at[max(at for at in self._model.running_at if at < revision)]
        for copy in before.sync:
            if copy.node in running and copy.node != node.encode():
                text = f"{node} leads {life}, and {copy.node.decode()} ran, which was in sync"
                raise Violation("unsynced", text)

    def _revision_of(self, life: str, epoch: int) -> int:
        """When the cluster decided that an epoch begins."""
        for revision, changes in self._model.history:
            for change in changes:
                if isinstance(change, PutQueue) and life == life_name(change.name, change.birth):
                    group = group_of(change)
                    if group is not None and group.epoch == epoch:
                        return revision
        raise AssertionError(f"nobody has decided on epoch {epoch} of {life}")

    def _group_before(self, place: MirrorPlace, epoch: int) -> Group | None:
        """The last group of an earlier epoch, None for the first one."""
        for _revision, changes in reversed(self._model.history):
            for change in changes:
                if (
                    isinstance(change, PutQueue)
                    and (change.name, change.birth) == (place.name, place.birth)
                    and change.group
                ):
                    group = group_of(change)
                    if group is not None and group.epoch < epoch:
                        return group
        return None

    def _heard(self, life: str, node: str, epoch: int) -> tuple[tuple[SentMessages, int], ...]:
        """The messages that the new master of `epoch` has from its predecessors; see `Move`."""
        copy = self._copy(life, node)
        return tuple(
            (self._epochs[life, number], copy.received if number == copy.epoch else 0)
            for number in range(copy.epoch, epoch)
            if (life, number) in self._epochs
        )


def _is_complete(mirror: MirrorRole) -> bool:
    """Whether the copy has everything of its master up to the last message that arrived."""
    if mirror.target is not None:
        return mirror.target.state == IN_SYNC
    return mirror.received_upto > 0
