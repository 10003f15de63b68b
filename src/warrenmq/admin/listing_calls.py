"""The listings of one session: of this node, or of all nodes of its cluster.

A listing is built in slices, one a turn, so that its length delays no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from warrenmq.admin.administration import Refusal
from warrenmq.admin.control_protocol import (
    ADMINISTRATOR,
    MONITORING,
    ControlReply,
    List,
    Rows,
)
from warrenmq.admin.listings.listing import (
    SPREAD,
    UnknownColumns,
    UnknownVhost,
    down_queue_rows,
    listing,
)
from warrenmq.admin.peers import Answer, Peers
from warrenmq.admin.permits import Permits
from warrenmq.admin.protocol import ErrorReply
from warrenmq.broker.broker import Broker
from warrenmq.vocabulary.error_codes import BAD_REQUEST, NO_SUCH_VHOST

# Rows that one turn builds.
SLICE_ROWS: Final = 50
# Listings of what belongs to the whole node, with the tag that they need; the others are of a
# vhost, and every management user who may enter it may ask for them.
_NODE_LISTINGS: Final = {
    "auth_attempts": MONITORING,
    "auth_attempts_by_source": ADMINISTRATOR,
    "users": ADMINISTRATOR,
    "permissions": ADMINISTRATOR,
    "topic_permissions": ADMINISTRATOR,
    "user_permissions": ADMINISTRATOR,
    "user_topic_permissions": ADMINISTRATOR,
    "user_limits": ADMINISTRATOR,
    "global_parameters": ADMINISTRATOR,
    "connections": MONITORING,
    "channels": MONITORING,
    "vhosts": MONITORING,
}
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
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._permits = permits
        self._peers = peers
        self._later = later
        self._reply = reply

    def start(self, request: List) -> None:
        """Carry out `request`. Raises Refusal."""
        tag = _NODE_LISTINGS.get(request.what)
        if tag is not None:
            self._permits.expect_tag(tag)
        elif request.what == "vhost_limits" and not request.vhost:
            # Those of all vhosts.
            self._permits.expect_tag(ADMINISTRATOR)
        else:
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
            self._build(down_queue_rows(self._broker, request) if is_queues else iter(()), [], [])
        elif self._peers is None or request.which == "local" or request.what not in SPREAD:
            self._build(rows, [], [])
        else:
            self._peers.ask_all(
                msgspec.structs.replace(request, which="local"),
                lambda answers: self._join_rows(request, rows, answers),
            )

    def _join_rows(
        self, request: List, own: Iterator[list[Any]], answers: dict[str, Answer]
    ) -> None:
        """Reply with the rows of all nodes; queues of a node without an answer may be down."""
        parts = [own]
        missing = []
        for node, answer in answers.items():
            if isinstance(answer, Rows):
                parts.append(iter(answer.rows))
            elif not isinstance(answer, ErrorReply) or answer.code != NO_SUCH_VHOST:
                missing.append(node)
        assert self._peers is not None
        cluster = self._peers.cluster
        if request.what != "queues":
            linked = {self._broker.settings.node_name, *cluster.reachable(), *answers}
            missing.extend(node for node in cluster.running() if node not in linked)
        elif request.which == "all":
            parts.append(down_queue_rows(self._broker, request))
            # Now its queues are known to be down.
            missing = [node for node in missing if node in cluster.reachable()]
        self._build(chain(*parts), [], missing)

    def _build(self, rows: Iterator[list[Any]], built: list[list[Any]], missing: list[str]) -> None:
        for row in rows:
            built.append(row)
            if len(built) % SLICE_ROWS == 0:
                self._later(lambda: self._build(rows, built, missing))
                return
        self._reply(Rows(built, missing))


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
