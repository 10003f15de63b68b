"""Nodes with ring members, the views that a group decides, and links that lose what they carry.

Every step is the caller's choice: which frame arrives next, which node hears of the next view. The
owners check as they go what the ring promises (`cluster/ring/member.py`); `World.settle` lets
everything arrive, and `World.check` compares what the survivors have.
"""

from collections import deque
from itertools import combinations

from warrenmq.cluster.ring.member import RingHost, RingMember
from warrenmq.cluster.ring.view import MemberId

Members = list[tuple[MemberId, bool]]
# The sender and the number of a broadcast.
Broadcast = tuple[MemberId, int]


class Owner(RingHost):
    """What one member was told; it checks each call."""

    def __init__(self, world: "World", me: MemberId) -> None:
        super().__init__()
        self.world = world
        self.me = me
        # The step at which the member joined, -1 before.
        self.joined_at = -1
        self.is_lost = False
        self.known: set[MemberId] = set()
        self.dead: list[MemberId] = []
        # Broadcasts that have arrived, with the step of their arrival, by sender.
        self.arrived: dict[MemberId, dict[int, int]] = {}
        self.circled_count = 0

    def send_frame(self, node: bytes, payload: bytes) -> None:
        assert not self.is_lost
        self.world.send(self.me.node, node, payload)

    def erase(self, member: MemberId) -> None:
        assert (member, True) not in self.world.members
        if (member, False) in self.world.members:
            self.world.erasable.add(member)

    def on_joined(self, members: list[MemberId]) -> None:
        assert self.joined_at < 0
        self.joined_at = self.world.step
        self.known = set(members)
        assert self.me in self.known

    def on_members_changed(self, births: list[MemberId], deaths: list[MemberId]) -> None:
        assert self.joined_at >= 0 and births + deaths
        assert self.known.isdisjoint(births) and self.known.issuperset(deaths)
        self.known = self.known.union(births).difference(deaths)
        self.dead += deaths

    def on_message(self, sender: MemberId, payload: bytes) -> None:
        assert self.joined_at >= 0 and not self.is_lost
        assert sender in self.known and sender != self.me
        number = int(payload.partition(b" ")[0])
        arrived = self.arrived.setdefault(sender, {})
        assert not arrived or number == max(arrived) + 1, "a sender's broadcasts come in order"
        assert self.world.payloads[sender, number] == payload
        arrived[number] = self.world.step

    def on_circled(self, count: int) -> None:
        for number in range(self.circled_count, self.circled_count + count):
            self.world.check_circled(self.me, number)
        self.circled_count += count
        assert self.circled_count <= self.world.counts[self.me]

    def on_lost(self) -> None:
        assert not self.is_lost
        self.is_lost = True


class Process:
    """One run of a node: its member of the ring, if it is one, and how many views it knows."""

    def __init__(self, views: int) -> None:
        self.views = views
        self.me: MemberId | None = None
        self.ring: RingMember | None = None
        self.owner: Owner | None = None


class World:
    def __init__(self, nodes: int) -> None:
        self.step = 0
        self.names = [b"n%d" % number for number in range(nodes)]
        self.processes: dict[bytes, Process] = {}
        # The views that were decided, oldest first.
        self.views: list[tuple[int, Members]] = []
        self.erasable: set[MemberId] = set()
        self.in_flight: dict[tuple[bytes, bytes], deque[bytes]] = {}
        self.up: set[frozenset[bytes]] = set()
        self.owners: dict[MemberId, Owner] = {}
        # Of all senders: how many broadcasts, their payloads, and the step of each.
        self.counts: dict[MemberId, int] = {}
        self.payloads: dict[Broadcast, bytes] = {}
        self.sent_at: dict[Broadcast, int] = {}
        for name in self.names:
            self.start(name)

    # -- nodes and links ---------------------------------------------------------------------------

    def start(self, name: bytes) -> None:
        self.processes[name] = Process(len(self.views))
        for other in self.names:
            if other != name:
                self.in_flight[name, other] = deque()
                self.in_flight[other, name] = deque()
        for other in self.processes:
            if other != name:
                self.link_up(name, other)

    def crash(self, name: bytes) -> None:
        """End a node's run; what it sent may still arrive."""
        del self.processes[name]
        for other in self.names:
            if other != name:
                self.in_flight[other, name].clear()
                self.up.discard(frozenset((name, other)))

    def link_down(self, one: bytes, other: bytes) -> None:
        self.up.discard(frozenset((one, other)))
        self.in_flight[one, other].clear()
        self.in_flight[other, one].clear()

    def link_up(self, one: bytes, other: bytes) -> None:
        self.up.add(frozenset((one, other)))
        for name, peer in ((one, other), (other, one)):
            ring = self.processes[name].ring
            if ring is not None:
                ring.on_link_up(peer)

    def send(self, source: bytes, target: bytes, payload: bytes) -> None:
        if frozenset((source, target)) in self.up:
            self.in_flight[source, target].append(payload)

    def deliver(self, source: bytes, target: bytes) -> None:
        """Let the next frame arrive, if there is one; without a member at the target it is lost."""
        frames = self.in_flight[source, target]
        if frames:
            payload = frames.popleft()
            process = self.processes.get(target)
            if process is not None and process.ring is not None:
                process.ring.take_frame(source, payload)

    def loaded_pairs(self) -> list[tuple[bytes, bytes]]:
        """The links, by source and target, that carry frames."""
        return [pair for pair, frames in self.in_flight.items() if frames]

    def pairs_without_link(self) -> list[tuple[bytes, bytes]]:
        """Running nodes without a link between them."""
        pairs = combinations(self.processes, 2)
        return [pair for pair in pairs if frozenset(pair) not in self.up]

    def stopped(self) -> list[bytes]:
        """The nodes that have crashed."""
        return [name for name in self.names if name not in self.processes]

    def able_to_join(self) -> list[bytes]:
        """Running nodes that are no members with this run."""
        return [
            name
            for name, process in self.processes.items()
            if process.me is None or self.living_on(name) != process.me
        ]

    def crashed_members(self) -> list[MemberId]:
        """Living members, to the group, whose run has ended."""
        return [
            id
            for id, is_alive in self.members
            if is_alive and (id.node not in self.processes or self.processes[id.node].me != id)
        ]

    # -- what the group decides --------------------------------------------------------------------

    @property
    def members(self) -> Members:
        return self.views[-1][1] if self.views else []

    @property
    def version(self) -> int:
        return self.views[-1][0] if self.views else 0

    def living_on(self, name: bytes) -> MemberId | None:
        """The living member on a node."""
        return next((id for id, is_alive in self.members if is_alive and id.node == name), None)

    def decide(self, members: Members, skipped: int = 0) -> None:
        self.views.append((self.version + 1 + skipped, members))

    def create(self, names: list[bytes]) -> None:
        """The group begins with several members, of versions 1, 2 and so on."""
        members = [MemberId(version, name) for version, name in enumerate(names, 1)]
        for member in members:
            self.counts[member] = 0
            self.processes[member.node].me = member
        self.views.append((len(members), [(member, True) for member in members]))

    def decide_join(self, name: bytes, place: int, skipped: int = 0) -> None:
        """Add a member, to the right of a living one if there is any.

        A member of an earlier run dies in the same step.
        """
        members = [(id, is_alive and id.node != name) for id, is_alive in self.members]
        me = MemberId(self.version + 1 + skipped, name)
        places = [at + 1 for at, member in enumerate(members) if member[1]] or [len(members)]
        at = places[place % len(places)]
        self.counts[me] = 0
        self.processes[name].me = me
        # A run has one member at a time; the group tells it that the earlier one is dead.
        self.processes[name].ring = None
        self.decide([*members[:at], (me, True), *members[at:]], skipped)

    def decide_death(self, member: MemberId) -> None:
        self.decide([(id, is_alive and id != member) for id, is_alive in self.members])

    def decide_erase(self, member: MemberId) -> None:
        self.erasable.discard(member)
        self.decide([each for each in self.members if each[0] != member])

    def see_view(self, name: bytes, skips: bool = False) -> None:
        """Let a node hear of the next view, or of the newest one only."""
        process = self.processes[name]
        if process.views < len(self.views):
            process.views = len(self.views) if skips else process.views + 1
            version, members = self.views[process.views - 1]
            me = process.me
            if process.ring is None and me is not None and (me, True) in members:
                process.owner = self.owners[me] = Owner(self, me)
                process.ring = RingMember(me, process.owner)
            if process.ring is not None:
                process.ring.on_view(version, members)

    # -- members -----------------------------------------------------------------------------------

    def broadcast(self, name: bytes, size: int = 0) -> None:
        ring = self.processes[name].ring
        if ring is not None and ring.is_joined:
            number = self.counts[ring.me]
            self.counts[ring.me] += 1
            self.payloads[ring.me, number] = b"%d " % number + bytes(size)
            self.sent_at[ring.me, number] = self.step
            ring.broadcast(self.payloads[ring.me, number])

    def end_turn(self, name: bytes) -> None:
        ring = self.processes[name].ring
        if ring is not None:
            ring.end_turn()

    # -- checks ------------------------------------------------------------------------------------

    def check_circled(self, sender: MemberId, number: int) -> None:
        """All living members that had joined before a broadcast have it when it has circled.

        A sender that does not know of its own death vouches only for the members that it knows.
        """
        known = self.owners[sender].known
        is_alive = (sender, True) in self.members
        for id, owner in self.owners.items():
            if id == sender or (id, True) not in self.members or owner.joined_at < 0:
                continue
            if owner.joined_at < self.sent_at[sender, number] and (is_alive or id in known):
                assert number in owner.arrived.get(sender, {}), (id, sender, number)

    def settle(self) -> None:
        """Record all deaths, mend all links, and let everything arrive."""
        for member in self.crashed_members():
            self.decide_death(member)
        for pair in self.pairs_without_link():
            self.link_up(*pair)
        for _ in range(200):
            self.step += 1
            for name, process in self.processes.items():
                while process.views < len(self.views):
                    self.see_view(name)
                self.end_turn(name)
            if not self.erasable and not self.loaded_pairs():
                break
            for pair in self.loaded_pairs():
                while self.in_flight[pair]:
                    self.deliver(*pair)
            if self.erasable:
                self.decide_erase(min(self.erasable))
        else:
            raise AssertionError("the ring does not come to rest")
        self.check()

    def check(self) -> None:
        """What holds when everything has arrived."""
        survivors = [self.owners[id] for id, is_alive in self.members if is_alive]
        assert not survivors or len(survivors) == len(self.members), "tombstones are erased"
        for owner in survivors:
            ring = self.processes[owner.me.node].ring
            assert ring is not None and ring.is_joined and ring.view is not None
            assert ring.view_version == self.version
            assert ring.view.living[owner.me].aliases == []
            assert ring.buffered_bytes == 0
            assert owner.known == {id for id, _ in self.members}
            assert owner.circled_count == self.counts[owner.me]
        for owner in survivors:
            for other in survivors:
                self.check_pair(owner, other)

    def check_pair(self, owner: Owner, other: Owner) -> None:
        """`owner` has all that `other` broadcast, or received from others, since both had joined.

        What was broadcast earlier, and reached `other` as a newcomer, may have been acked.
        """
        for sender, numbers in other.arrived.items():
            if sender == owner.me:
                continue
            mine = owner.arrived.get(sender, {})
            for number, arrived_at in numbers.items():
                is_older = other.joined_at <= owner.joined_at < arrived_at
                if is_older or self.sent_at[sender, number] > owner.joined_at:
                    assert number in mine, (owner.me, other.me, sender, number)
            assert not mine or max(mine) >= max(numbers), (owner.me, other.me, sender)
        if owner is not other:
            for number in range(self.counts[other.me]):
                if self.sent_at[other.me, number] > owner.joined_at:
                    assert number in owner.arrived.get(other.me, {}), (owner.me, other.me, number)
