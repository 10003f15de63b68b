"""All links of a node: which nodes it dials and when, and one link for each pair of nodes.

The node whose name sorts lower dials, so two nodes do not dial each other. A dial that fails, or
that ends in a refusal, is repeated after a pause, which grows from PAUSE_MIN_MS to PAUSE_MAX_MS. A
link that was up for STABLE_MS is dialled again at once.

A node that accepts a link from a node to which it has one already believes the newer: a node dials
only when it has no link, so the older one is dead on the other side and half-open on this one. Only
an older incarnation of the other node is refused.

Why there is no link to a node is logged once, not at each attempt: again when the reason changes,
or when the link was up in between. A node that starts may dial before the others have heard of it;
that one node does not know the other is logged when it is still so STRANGER_MS later.

Does no I/O. The shell asks what to dial, reports what came of it, and moves the bytes.
"""

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.cluster.links.handshake import NONCE_BYTES, Handshake, Identity, printable
from warrenmq.cluster.links.link import Link, LinkHandler, LinkHost
from warrenmq.cluster.links.link_secrets import LinkSecrets

logger = logging.getLogger("warren.cluster")

PAUSE_MIN_MS: Final = 500
PAUSE_MAX_MS: Final = 5000
# A link that was up for this time is dialled again without a pause when it is lost.
STABLE_MS: Final = 5000
# For this time nodes may refuse each other because the news of one has not reached the other.
STRANGER_MS: Final = 3000
# Why a connection ended that came and went without a word: a node asked whether this one listens.
PROBED: Final = "a probe"
# Accepted links that may be in their handshake at the same time.
HANDSHAKES_MAX: Final = 64
# Subjects whose last fault is remembered. Forgetting them does no harm: a line is repeated.
_FAULTS_MAX: Final = 1000

# Host and port.
Address = tuple[str, int]


def shown(address: Address) -> str:
    """HOST:PORT, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """The host in what `shown` has returned: the port of a dialling node is another each time."""
    return address.rpartition(":")[0]


class _Peer:
    """Another node of the cluster."""

    def __init__(self, address: Address, is_dialled: bool, now_ms: int) -> None:
        self.address = address
        # Whether this node dials the other one, or waits to be dialled.
        self.is_dialled = is_dialled
        # Whether a link to the other node is up.
        self.link: Link | None = None
        self.up_since_ms = 0
        # True while a dial is under way or the link is up: dial no second time.
        self.is_dialling = False
        self.dial_at_ms = now_ms
        self.pause_ms = PAUSE_MIN_MS


class Links(LinkHost):
    """The links of the node `own`, which calls `handler`.

    `random_bytes` returns that many random bytes.
    """

    def __init__(
        self,
        own: Identity,
        secrets: LinkSecrets,
        handler: LinkHandler,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._own = own
        # The secrets of the cluster that new links use; may be replaced at any time.
        self.secrets = secrets
        self._handler = handler
        self._random_bytes = random_bytes
        self._peers: dict[str, _Peer] = {}
        # Every link that is not down, also those in their handshake; in order, as a simulation
        # needs it.
        self._all: dict[Link, None] = {}
        self._dirty: list[Link] = []
        # Why there is no link, as it was last logged, by node or address.
        self._faults: dict[str, str] = {}
        # Since when links have failed because one node did not know the other, by node.
        self._strangers: dict[str, int] = {}
        self._now_ms = 0

    # -- for the node ------------------------------------------------------------------------------

    def set_peers(self, peers: dict[str, Address], now_ms: int) -> None:
        """Set the other nodes of the cluster and their addresses.

        A link to a node that is no longer among them is closed.
        """
        self._now_ms = now_ms
        gone = [name for name in self._peers if name not in peers]
        for name in gone:
            link = self._peers.pop(name).link
            if link is not None:
                link.close(f"node {self._own.node_name} does not know node {name} any more")
        for name, address in peers.items():
            if name in self._peers:
                self._peers[name].address = address
            elif name != self._own.node_name:
                self._peers[name] = _Peer(address, name > self._own.node_name, now_ms)

    def link_to(self, name: str) -> Link | None:
        """The link to the node `name` if it is up."""
        peer = self._peers.get(name)
        return None if peer is None else peer.link

    def close(self, reason: str) -> None:
        """Close all links for `reason`; no link comes up any more."""
        self._peers = {}
        for link in list(self._all):
            link.close(reason)

    # -- for the shell -----------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether one more link may be accepted."""
        arriving = [link for link in self._all if not link.is_up and not link.is_dialled]
        return len(arriving) < HANDSHAKES_MAX

    def take_dials(self, now_ms: int) -> list[tuple[str, Address]]:
        """Names and addresses of the nodes to dial now.

        The shell answers each with `dialled` or with `dial_failed`.
        """
        found = []
        for name, peer in self._peers.items():
            is_due = peer.is_dialled and not peer.is_dialling and peer.dial_at_ms <= now_ms
            if is_due and peer.link is None:
                peer.is_dialling = True
                found.append((name, peer.address))
        return found

    def dialled(self, name: str, address: str, now_ms: int) -> Link:
        """The link on a connection that this node has made to the node `name` at `address`."""
        return self._new_link(name, address, now_ms)

    def dial_failed(self, name: str, address: str, reason: str, now_ms: int) -> None:
        """No connection to the node `name` could be made."""
        self._now_ms = now_ms
        self._log_fault(name, f"no link to node {name} at {address}: {reason}")
        peer = self._peers.get(name)
        if peer is not None:
            self._plan_dial(peer, was_stable=False)

    def accepted(self, address: str, now_ms: int) -> Link:
        """The link on a connection that another node has made from `address`."""
        return self._new_link("", address, now_ms)

    def accept_failed(self, address: str, reason: str) -> None:
        """A connection that another node has made from `address` has not become a link."""
        host = host_of(address)
        self._log_fault(host, f"no link from {host}: {reason}")

    def tick(self, now_ms: int) -> None:
        """Run the timers of all links; to be called several times a second."""
        self._now_ms = now_ms
        for link in list(self._all):
            link.tick(now_ms)

    def take_dirty(self) -> list[Link]:
        """The links that have output or are down since the last call."""
        dirty = self._dirty
        self._dirty = []
        return dirty

    # -- for the links -----------------------------------------------------------------------------

    def on_output(self, link: Link) -> None:
        """See LinkHost."""
        self._dirty.append(link)

    def on_up(self, link: Link) -> None:
        """See LinkHost."""
        identity = link.peer
        assert identity is not None
        name = identity.node_name
        peer = self._peers[name]
        if peer.link is not None:
            peer.link.close(f"node {name} has made another link")
        peer.link = link
        peer.up_since_ms = self._now_ms
        self._faults.pop(name, None)
        self._strangers.pop(name, None)
        logger.info(
            "link to node %s at %s is up (warren %s, version %d of the links)",
            name,
            link.address,
            printable(identity.software_version),
            link.version,
        )
        self._handler.on_up(link)

    def on_down(self, link: Link, reason: str) -> None:
        """See LinkHost."""
        del self._all[link]
        self._dirty.append(link)
        name = link.peer_name
        peer = self._peers.get(name)
        was_up = link.peer is not None
        if peer is not None and link.is_dialled:
            was_stable = was_up and self._now_ms - peer.up_since_ms >= STABLE_MS
            self._plan_dial(peer, was_stable)
        if was_up:
            if peer is not None:
                peer.link = None
            logger.warning("link to node %s at %s is down: %s", name, link.address, reason)
            self._handler.on_down(link, reason)
        elif self._may_pass(name, reason):
            return
        elif link.is_dialled:
            self._log_fault(name, f"no link to node {name} at {link.address}: {reason}")
        elif reason != PROBED:
            host = host_of(link.address)
            self._log_fault(name or host, f"no link from {host}: {reason}")

    # -- internal ----------------------------------------------------------------------------------

    def _new_link(self, expected_name: str, address: str, now_ms: i64) -> Link:
        self._now_ms = now_ms
        nonce = self._random_bytes(NONCE_BYTES)
        handshake = Handshake(self._own, self.secrets, nonce, expected_name, self._refusal_of)
        link = Link(handshake, address, self, self._handler, now_ms)
        self._all[link] = None
        return link

    def _refusal_of(self, identity: Identity) -> str:
        """Why a node may not have a link to this one; "" when it may."""
        name = identity.node_name
        peer = self._peers.get(name)
        if peer is None:
            return _unknown(self._own.node_name, name)
        known = None if peer.link is None else peer.link.peer
        if known is not None and identity.incarnation < known.incarnation:
            return f"a later start of node {name} has a link to node {self._own.node_name}"
        return ""

    def _plan_dial(self, peer: _Peer, was_stable: bool) -> None:
        peer.is_dialling = False
        if was_stable:
            peer.pause_ms = PAUSE_MIN_MS
            peer.dial_at_ms = self._now_ms
        else:
            peer.dial_at_ms = self._now_ms + peer.pause_ms
            peer.pause_ms = min(2 * peer.pause_ms, PAUSE_MAX_MS)

    def _may_pass(self, name: str, reason: str) -> bool:
        """Whether a handshake with the node `name` failed only because one started just now."""
        own = self._own.node_name
        # The other side's reason comes after some words of this side.
        if not reason.endswith((_unknown(own, name), _unknown(name, own))):
            return False
        if len(self._strangers) >= _FAULTS_MAX:
            self._strangers = {}
        return self._now_ms - self._strangers.setdefault(name, self._now_ms) < STRANGER_MS

    def _log_fault(self, subject: str, line: str) -> None:
        if self._faults.get(subject) != line:
            if len(self._faults) >= _FAULTS_MAX:
                self._faults = {}
            self._faults[subject] = line
            logger.warning("%s", line)


def _unknown(node: str, other: str) -> str:
    return f"node {node} does not know node {other}"
