"""The parts of a reader group: one at each node that has queues of it.

The part of a group in a queue lives with the queue, on its home. A broker that runs alone has the
whole group, as one part; the home of its queues is "". In a cluster the driver opens the group at
each home. A pattern is opened at every node, because a queue that matches it may be declared on
any. A home that is down is waited for: without it, the driver could not tell its queues from
deleted ones.

All parts have the same epoch, above all that the homes have given. So when the master of a mirrored
queue moves, the requests of a running batch are good at its new home as well (`relocate`): the
group's part has come along, with that epoch.
"""

import logging
import random
import time
from typing import Final

from msgspec.structs import replace

from warrenmq.admin.client.client import NodeUnreachableError
from warrenmq.admin.protocol.homes import LocateQueues, QueuesLocated
from warrenmq.admin.protocol.requests import (
    GroupOpened,
    Member,
    MemberRange,
    OpenGroup,
    Reserve,
    Reserved,
)
from warrenmq.spark.broker_link import BrokerLink
from warrenmq.spark.homes import Homes, QueueLink, homes_in, homes_of
from warrenmq.spark.nodes import Place
from warrenmq.spark.options import EARLIEST, SourceOptions
from warrenmq.spark.streams.offsets import QueueKey, queue_key
from warrenmq.spark.streams.polls import Polls
from warrenmq.vocabulary.names import name_text

# Interval at which a pattern's group looks for nodes that have come into the cluster (s).
_LOOK_S: Final = 5.0
# Epochs of two queries that open a group at the same moment, at several nodes, are about this far
# from each other, so that each home knows the newer one.
_EPOCHS_APART: Final = 1000
# The home of all queues of a node that runs alone.
ALONE: Final = ""

_log = logging.getLogger("warren.spark")


class GroupParts:
    """The parts of `group`. The constructor does no I/O; `entry` is the node of the options."""

    def __init__(self, options: SourceOptions, group: str) -> None:
        self._options = options
        self._group = group
        # The epoch of each part, by home; empty until the group is opened.
        self.epochs: dict[str, int] = {}
        # The home of each queue of the group, where its requests go.
        self.home_of: dict[QueueKey, str] = {}
        # Priority queues that match the pattern: no group reads them.
        self.passed_over: set[bytes] = set()
        self._polls = Polls()
        self._looked_s = 0.0

    @property
    def is_clustered(self) -> bool:
        """Whether the broker is a cluster; only after `open`."""
        return ALONE not in self.epochs

    def open(self, entry: BrokerLink) -> list[tuple[str, Member]]:
        """Create or take over all parts; returns their queues, with their homes.

        Raises AdminRefusedError, and SourceError when a home stays away.
        """
        self._polls.abandon()
        wanted = LocateQueues(self._names(), self._options.pattern)
        located = self._homes().locate(wanted, entry)
        self.epochs = {}
        self.home_of = {}
        if not located.nodes:
            opened = entry.request(self._open_request(self._names()), GroupOpened)
            self.epochs[ALONE] = opened.epoch
            self._pass_over(opened.passed_over)
            return [(ALONE, member) for member in opened.members]
        members: dict[str, list[tuple[str, Member]]] = {}
        requests = self._requests(located)
        for home, (request, queues) in requests.items():
            members[home] = self._open_part(home, request, queues)
        if len(self.epochs) > 1:
            newest = max(self.epochs.values()) + random.randint(1, _EPOCHS_APART)
            for home in list(self.epochs):
                request, queues = requests[home]
                members[home] = self._open_part(home, replace(request, epoch=newest), queues)
        self._looked_s = time.monotonic()
        return [member for of_home in members.values() for member in of_home]

    def note(self, home: str, member: Member | MemberRange) -> QueueKey:
        """Note that a queue of the group lives on `home`; returns its key."""
        key = queue_key(member.queue, member.incarnation, home, member.birth)
        self.home_of[key] = home
        return key

    def relocate(self, entry: BrokerLink) -> None:
        """Find the homes of the queues anew; the group's parts have moved with their queues.

        Raises SourceError when a home stays away.
        """
        keys = [key for key in self.home_of if key.is_birth]
        wanted = LocateQueues([key.queue for key in keys])
        found = homes_in(self._homes().locate(wanted, entry))
        newest = max(self.epochs.values(), default=0)
        for key in keys:
            # A queue that is deleted is so at the home that it had.
            home = found.get(key.queue, self.home_of[key])
            self.home_of[key] = home
            self.epochs.setdefault(home, newest)
        if not self._options.pattern:
            in_use = set(self.home_of.values())
            self.epochs = {home: each for home, each in self.epochs.items() if home in in_use}

    def join_nodes(self, entry: BrokerLink) -> list[tuple[str, Member]]:
        """Open the group at nodes that run since; returns their queues. Only for a pattern."""
        if not self._options.pattern or not self.is_clustered:
            return []
        if time.monotonic() < self._looked_s + _LOOK_S:
            return []
        self._looked_s = time.monotonic()
        homes = self._homes()
        homes.locate(LocateQueues(), entry)
        members: list[tuple[str, Member]] = []
        newest = max(self.epochs.values(), default=0)
        for home in homes.places.keys() - self.epochs.keys():
            request = self._open_request([], is_new_node=True)
            members += self._open_part(home, replace(request, epoch=newest), [])
        return members

    def queue_link(self, key: QueueKey, home: str, place: Place | None = None) -> QueueLink:
        """A connection to the home of a queue in a cluster, which it follows; see `link`."""
        homes = self._homes()
        if place is not None:
            homes.hint(home, place)
        return homes.queue_link(key.queue, home)

    def ack_link(self, home: str, entry: BrokerLink) -> BrokerLink:
        """The process's connection to `home` for requests about all its queues of the group."""
        if home == ALONE:
            return entry
        return self._homes().link(home, self._queues_at(home))

    def lag_link(self, home: str) -> BrokerLink:
        """A connection to `home` of a cluster that does not wait for it."""
        purpose = f"lag of Spark group {self._group}"
        homes = homes_of(self._options.uri, purpose, 0)
        known = self._homes().places.get(home)
        if known is not None:
            homes.hint(home, known)
        return homes.link(home)

    def place(self, home: str) -> Place | None:
        """Where `home` is; None on a node that runs alone."""
        return None if home == ALONE else self._homes().places.get(home)

    def reserve(self, entry: BrokerLink, requests: dict[str, Reserve]) -> dict[str, Reserved]:
        """The answers to the requests, by home, that came in time (`Polls.run`)."""
        alone = requests.get(ALONE)
        if alone is not None:
            reserved = entry.request(alone, Reserved, alone.wait_ms / 1000)
            self._pass_over(reserved.passed_over)
            return {ALONE: reserved}
        found: dict[str, Reserved] = {}
        for home, reply in self._polls.run(requests, self._new_poll_link).items():
            if reply is None:
                # A node without queues of the group is down: nobody misses it until it is back.
                del self.epochs[home]
            else:
                found[home] = reply
                self._pass_over(reply.passed_over)
        return found

    def _pass_over(self, queues: list[bytes]) -> None:
        """Log each priority queue that the group cannot read, once in a query."""
        new = sorted(set(queues) - self.passed_over)
        if new:
            self.passed_over.update(new)
            _log.warning(
                "reader group '%s' passes over priority queues, whose messages have no common order: %s",
                self._group,
                ", ".join([f"'{name_text(queue)}'" for queue in new]),
            )

    # -- opening -----------------------------------------------------------------------------------

    def _requests(self, located: QueuesLocated) -> dict[str, tuple[OpenGroup, list[bytes]]]:
        """The requests for all nodes, and their queues, in the order in which they are sent.

        The node that answered comes first if it has to refuse a queue that does not exist: until
        then nothing has changed anywhere.
        """
        if self._options.pattern:
            found = homes_in(located)
            return {
                place.id: (
                    self._open_request([]),
                    [queue for queue, home in found.items() if home == place.id],
                )
                for place in located.nodes
            }
        node_of = {each.queue: each.node for each in located.homes}
        names = {place.id: place.node for place in located.nodes}
        queues: dict[str, list[bytes]] = {home: [] for home in names}
        homes = {node: home for home, node in names.items()}
        missing: str | None = None
        for name in self._names():
            home = homes.get(node_of.get(name, located.node), located.nodes[0].id)
            queues[home].append(name)
            if name not in node_of:
                missing = home
        requests = {}
        for home in sorted(queues, key=lambda each: (each != missing, each)):
            elsewhere = [name for name in self._names() if name not in queues[home]]
            requests[home] = self._open_request(queues[home], elsewhere), queues[home]
        return requests

    def _open_part(
        self, home: str, request: OpenGroup, queues: list[bytes]
    ) -> list[tuple[str, Member]]:
        """Open the group at `home`, which has `queues` of it.

        A home without any that does not answer is like one that is down. Raises QueuesMovedError.
        """
        homes = self._homes()
        if queues:
            opened = homes.link(home, queues).request(request, GroupOpened)
        else:
            try:
                opened = homes.ask_once(home, request, GroupOpened)
            except NodeUnreachableError:
                self.epochs.pop(home, None)
                return []
        # Epoch 0: the group has nothing at this node.
        if opened.epoch:
            self.epochs[home] = opened.epoch
        self._pass_over(opened.passed_over)
        return [(home, member) for member in opened.members]

    def _open_request(
        self,
        queues: list[bytes],
        elsewhere: list[bytes] | None = None,
        is_new_node: bool = False,
    ) -> OpenGroup:
        options = self._options
        start = options.start
        begin = start.name or (EARLIEST if start.timestamp_ms is None else start.timestamp_ms)
        return OpenGroup(
            group=self._group,
            queues=queues,
            pattern=options.pattern,
            # A queue that joins later is read from its first message, wherever it lives.
            start=EARLIEST if is_new_node else begin,
            start_at=dict(start.seqs),
            may_rebind=not options.fail_on_data_loss,
            elsewhere=elsewhere or [],
        )

    def _names(self) -> list[bytes]:
        return [name.encode() for name in self._options.queues]

    def _homes(self) -> Homes:
        return homes_of(
            self._options.uri, f"Spark group {self._group}", self._options.retry_timeout_ms
        )

    def _new_poll_link(self, home: str, has_queues: bool) -> BrokerLink:
        timeout_ms = self._options.retry_timeout_ms if has_queues else 0
        return self._homes().new_link(home, timeout_ms, lambda: self._queues_at(home))

    def _queues_at(self, home: str) -> list[bytes]:
        return [key.queue for key, each in list(self.home_of.items()) if each == home]
