"""The calls of one session that begin compactions of stores."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.peers import Peers
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.control import ControlReply
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.stores import (
    CompactionBegun,
    CompactStores,
    StoreCompaction,
    StoreName,
)
from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.contents.store import ContentStore
from warrenmq.store.figures import ContentFigures
from warrenmq.vocabulary.error_codes import NOT_FOUND
from warrenmq.vocabulary.names import name_text


class StoreCalls:
    """Begins compactions; each request is answered once, through `reply`.

    `peers`: the other nodes that may be asked, None for none.
    """

    def __init__(
        self,
        broker: Broker,
        node: ControlHost,
        permits: Permits,
        peers: Peers | None,
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._broker = broker
        self._node = node
        self._permits = permits
        self._peers = peers
        self._reply = reply

    def compact(self, request: CompactStores) -> None:
        """Carry out `request`. Raises Refusal."""
        own_name = self._node.describe().node
        if request.node is not None and request.node != own_name:
            if self._peers is None:
                raise Refusal(NOT_FOUND, f"there is no node {request.node}")
            self._peers.ask(request.node, request, self._reply)
            return
        vhosts = list(self._broker.vhosts.values())
        if request.vhost is not None:
            vhosts = [self._permits.expect_vhost(request.vhost)]
        begun = [
            _begin(vhost, name, contents)
            for vhost in vhosts
            for name, contents in _stores_of(vhost)
            if request.store in (None, name)
        ]
        self._broker.wake()
        self._reply(CompactionBegun(own_name, begun))


def _stores_of(vhost: Vhost) -> list[tuple[StoreName, ContentStore]]:
    contents = vhost.store.contents
    return [("persistent", contents.persistent), ("transient", contents.transient)]


def _begin(vhost: Vhost, name: StoreName, contents: ContentStore) -> StoreCompaction:
    contents.want_compaction()
    figures = ContentFigures(contents)
    return StoreCompaction(
        name_text(vhost.name), name, figures.wanted_files, figures.wanted_garbage_bytes
    )
