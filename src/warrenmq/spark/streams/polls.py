"""Reserves at several nodes at once: a batch begins as soon as one of them has messages.

Each node may defer its answer (long poll). A poll that is still waiting when another node has
answered goes on, and its answer belongs to a later batch: it reserves the same range that a new
poll would, since the positions of its queues have not moved. So no connection is cut, and an idle
node costs one request for each long poll.
"""

import threading
from collections.abc import Callable
from typing import Final

from warrenmq.admin.protocol.requests import Reserve, Reserved
from warrenmq.spark.broker_link import BrokerLink
from warrenmq.spark.retry import SourceError

# How long a batch waits for answers of other nodes after the first one with messages (s).
_GRACE_S: Final = 0.02
# How long a long poll may be overdue before the batch goes on without it (s).
_LATE_S: Final = 1.0


class _Poll:
    """One Reserve on its way; a thread of its own waits for the answer."""

    def __init__(self, link: BrokerLink, request: Reserve, changed: threading.Condition) -> None:
        self.link = link
        self.request = request
        self.reply: Reserved | None = None
        self.error: Exception | None = None
        self._changed = changed
        # A daemon: a query that ends waits for no node.
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self.reply is not None or self.error is not None

    @property
    def has_news(self) -> bool:
        """Whether the answer is more than that there are no messages."""
        if self.reply is None:
            return self.error is not None
        members = self.reply.members
        is_same = {member.incarnation for member in members} == self.request.starts.keys()
        return not is_same or any(member.end != member.start for member in members)

    def _run(self) -> None:
        reply: Reserved | None = None
        error: Exception | None = None
        try:
            reply = self.link.request(self.request, Reserved, self.request.wait_ms / 1000)
        except Exception as failure:  # whatever it is: the driver raises it
            error = failure
        with self._changed:
            self.reply = reply
            self.error = error
            self._changed.notify_all()


class Polls:
    """The reserves of one group, at most one for each node.

    A pickled copy, as workers get it, has none.
    """

    def __init__(self) -> None:
        self._polls: dict[str, _Poll] = {}
        # Connections of polls that have ended, by home and whether they wait for it.
        self._free: dict[tuple[str, bool], BrokerLink] = {}
        self._changed = threading.Condition()

    def __reduce__(self) -> tuple[type["Polls"], tuple[()]]:
        return type(self), ()

    def abandon(self) -> None:
        """Forget all polls; their answers will not be used."""
        self._polls.clear()

    def run(
        self, requests: dict[str, Reserve], new_link: Callable[[str, bool], BrokerLink]
    ) -> dict[str, Reserved | None]:
        """Send the requests, by home, and return the answers that are there in time.

        Returns as soon as there are messages, else after the wait that the requests allow. None
        for a home without queues that does not answer. `new_link(home, has_queues)` makes a
        connection; without queues it must not wait for its node. Raises AdminRefusedError and
        SourceError of any poll.
        """
        for home in self._polls.keys() - requests.keys():
            del self._polls[home]
        for home, request in requests.items():
            poll = self._polls.get(home)
            if poll is None or poll.request != request:
                place = home, bool(request.starts)
                link = self._free.pop(place, None) or new_link(*place)
                self._polls[home] = _Poll(link, request, self._changed)
        wait_s = max([request.wait_ms for request in requests.values()], default=0) / 1000
        with self._changed:
            if wait_s == 0:
                self._changed.wait_for(self._are_all_done)
            else:
                self._changed.wait_for(self._have_news, wait_s + _LATE_S)
                self._changed.wait_for(self._are_all_done, _GRACE_S)
            return self._collect()

    def _have_news(self) -> bool:
        return self._are_all_done() or any(poll.has_news for poll in self._polls.values())

    def _are_all_done(self) -> bool:
        return all(poll.is_done for poll in self._polls.values())

    def _collect(self) -> dict[str, Reserved | None]:
        found: dict[str, Reserved | None] = {}
        for home, poll in list(self._polls.items()):
            if not poll.is_done:
                continue
            del self._polls[home]
            self._free[home, bool(poll.request.starts)] = poll.link
            is_away = isinstance(poll.error, SourceError) and not poll.request.starts
            if poll.error is not None and not is_away:
                raise poll.error
            found[home] = poll.reply
        return found
