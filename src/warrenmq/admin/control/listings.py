"""The listings of one session: of this node, or of all nodes of its cluster.

A listing is built in slices, one a turn, so that its length delays no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from warrenmq.admin.control.peers import Answer, Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.listings.columns import chosen, vhost_of
from warrenmq.admin.listings.listing import (
    SPREAD,
    UnknownColumns,
    UnknownVhost,
    down_queue_rows,
    listing,
)
from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.error_codes import BAD_REQUEST, NO_SUCH_VHOST
from warrenmq.vocabulary.names import name_text

# Rows that one turn builds.
SLICE_ROWS: Final = 50
# The nodes are asked so many times at most while a queue is in none of their answers.
_ROUNDS: Final = 3
# Listings of what belongs to the whole node, with the tag that they need; most others are of a
# vhost, and every management user who may enter it, or monitors the node, may ask for them.
_NODE_LISTINGS: Final = {
    "auth_attempts": control.MONITORING,
    "auth_attempts_by_source": control.ADMINISTRATOR,
    "users": control.ADMINISTRATOR,
    "permissions": control.ADMINISTRATOR,
    "topic_permissions": control.ADMINISTRATOR,
    "user_permissions": control.ADMINISTRATOR,
    "user_topic_permissions": control.ADMINISTRATOR,
    "user_limits": control.ADMINISTRATOR,
    "global_parameters": control.ADMINISTRATOR,
}
# Listings of the whole node of which a user without the tag monitoring gets its own part.
_OWN_LISTINGS: Final = ("channels", "connections", "vhosts")
# Listings that are of one user, who must exist.
_LISTINGS_OF_A_USER: Final = ("user_permissions", "user_topic_permissions")


class ListingCalls:
    """Makes listings; each request is answered once, through `reply`.

    `peers`: the other nodes that may be asked, None for none. `later` runs a step in another turn,
    and answers the request if the step fails.
    """

    def __init__(
        self,
        broker: Broker,
        permits: Permits,
        peers: Peers | None,
        later: Callable[[Callable[[], None]], None],
        reply: Callable[[control.ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._permits = permits
        self._peers = peers
        self._later = later
        self._reply = reply

    def start(self, request: control.List) -> None:
        """Carry out `request`. Raises Refusal."""
        tag = _NODE_LISTINGS.get(request.what)
        if tag is not None:
            self._permits.expect_tag(tag)
        elif request.what == "vhost_limits" and not request.vhost:
            # Without a vhost the request asks for the limits of all vhosts.
            self._permits.expect_tag(control.ADMINISTRATOR)
        elif request.what in _OWN_LISTINGS:
            request = self._of_own(request)
        elif not self._permits.user.has_tag(control.MONITORING):
            self._permits.expect_vhost(request.vhost)
        if request.what in _LISTINGS_OF_A_USER:
            self._permits.expect_user(request.user)
        try:
            rows = listing(self._broker, request)
        except UnknownColumns as error:
            raise Refusal(BAD_REQUEST, str(error)) from None
        except UnknownVhost as error:
            raise Refusal(NO_SUCH_VHOST, str(error)) from None
        if self._peers is not None and request.what == "vhosts":
            rows = _with_states(rows, request.columns, self._peers.cluster.running())
        if request.which == "offline" and request.what in SPREAD:
            is_queues = request.what == "queues"
            self._answer(down_queue_rows(self._broker, request) if is_queues else iter(()), [])
        elif self._peers is None or request.which == "local" or request.what not in SPREAD:
            self._answer(rows, [])
        elif request.what == "queues":
            self._ask_for_queues(self._peers, request, _ROUNDS)
        else:
            self._ask_all(self._peers, request, rows)

    def _of_own(self, request: control.List) -> control.List:
        """The request, for what belongs to its user unless that user monitors the node."""
        user = self._permits.user
        name = "" if user.has_tag(control.MONITORING) else name_text(user.name)
        return msgspec.structs.replace(request, user=name)

    def _ask_all(self, peers: Peers, request: control.List, own: Iterator[list[Any]]) -> None:
        """Reply with the rows of all nodes."""

        def join(answers: dict[str, Answer]) -> None:
            parts, missing = _parted(answers)
            cluster = peers.cluster
            linked = {self._broker.settings.node_name, *cluster.reachable(), *answers}
            missing.extend(node for node in cluster.running() if node not in linked)
            self._answer(chain(own, *parts), missing)

        peers.ask_all(msgspec.structs.replace(request, which="local"), join)

    def _ask_for_queues(self, peers: Peers, request: control.List, rounds: int) -> None:
        """Reply with the queues of all nodes; those of a node without an answer may be down.

        A queue that moves to another node meanwhile may be in two answers, of which one counts, or
        missing in all. The nodes are asked up to `rounds` times; a queue that is missing in the
        last answers too counts as down, unless it has come to this node: then they are asked once
        more.
        """
        # Ask for the names in a last column, which tells the queues that have a row.
        local = msgspec.structs.replace(request, which="local", columns=[*request.columns, "name"])
        vhost = vhost_of(self._broker, request)
        own_queues = chosen(vhost.queues, request.names)
        names = {queue.name for queue in (*own_queues, *chosen(vhost.remote_queues, request.names))}
        unlisted = names.copy()
        own = listing(self._broker, local)

        def noted(rows: Iterable[list[Any]]) -> Iterator[list[Any]]:
            for row in rows:
                name = row.pop().encode()
                if name in unlisted or name not in names:
                    unlisted.discard(name)
                    yield row

        def join(answers: dict[str, Answer]) -> None:
            parts, missing = _parted(answers)
            self._build(noted(chain(own, *parts)), [], lambda rows: complete(rows, missing))

        def complete(rows: list[list[Any]], missing: list[str]) -> None:
            lost = {name for name in unlisted if _is_expected(vhost, name, missing)}
            if self._broker.vhosts.get(vhost.name) is not vhost:
                self._reply(ErrorReply(NO_SUCH_VHOST, str(UnknownVhost(request.vhost))))
            elif lost and (rounds > 1 or not lost.isdisjoint(vhost.queues)):
                self._ask_for_queues(peers, request, rounds - 1)
            elif request.which == "all":
                # The queues of other nodes without an answer are known to be down.
                reachable = peers.cluster.reachable()
                missing = [node for node in missing if node in reachable]
                down = down_queue_rows(self._broker, request, lost, names - unlisted)
                self._build(down, rows, lambda rows: self._reply(control.Rows(rows, missing)))
            else:
                self._reply(control.Rows(rows, missing))

        peers.ask_all(local, join)

    def _answer(self, rows: Iterator[list[Any]], missing: list[str]) -> None:
        self._build(rows, [], lambda built: self._reply(control.Rows(built, missing)))

    def _build(
        self,
        rows: Iterator[list[Any]],
        built: list[list[Any]],
        done: Callable[[list[list[Any]]], None],
    ) -> None:
        """Add `rows` to `built` in slices, then call `done`."""
        for row in rows:
            built.append(row)
            if len(built) % SLICE_ROWS == 0:
                self._later(lambda: self._build(rows, built, done))
                return
        done(built)


def _parted(answers: dict[str, Answer]) -> tuple[list[list[list[Any]]], list[str]]:
    """The rows that each node has answered, and the nodes without an answer."""
    parts = []
    missing = []
    for node, answer in answers.items():
        if isinstance(answer, control.Rows):
            parts.append(answer.rows)
        elif not isinstance(answer, ErrorReply) or answer.code != NO_SUCH_VHOST:
            missing.append(node)
    return parts, missing


def _is_expected(vhost: Vhost, name: bytes, missing: list[str]) -> bool:
    """Whether the answers should have a row of the queue: its node runs and is not `missing`.

    False for a name that its row does not show as it is.
    """
    if name_text(name).encode() != name:
        return False
    queue = vhost.remote_queues.get(name)
    if queue is None:
        return name in vhost.queues
    return queue.home.session is not None and name_text(queue.home.name) not in missing


def _with_states(
    rows: Iterator[list[Any]], columns: list[str], nodes: list[str]
) -> Iterator[list[Any]]:
    """The rows of vhosts with their state on all running nodes: each vhost is on each node."""
    states = dict.fromkeys(nodes, "running")
    for row in rows:
        yield [
            states if name == "cluster_state" else value
            for name, value in zip(columns, row, strict=True)
        ]
