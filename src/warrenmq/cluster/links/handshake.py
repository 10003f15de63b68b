"""The handshake of a node link: both sides say who they are and prove that they know the secret.

    dialling node                                  accepting node
    HELLO      who I am, a nonce               ->
                                               <-  CHALLENGE  who I am, a nonce
    PROOF      HMAC(secret, "dialer", both)    ->
                                               <-  WELCOME    HMAC(secret, "acceptor", both)

*Both* are the whole payloads of HELLO and CHALLENGE. So a proof (HMAC-SHA256) covers both nonces,
names, clusters and offered versions: it fits no other handshake, and nobody between the nodes can
change a word. The role in it keeps a proof from being sent back to its author. The secret never
travels. While a secret replaces another one, nodes use the newest that both have heard of.

Each side checks what the other says, in the order of `Handshake._fault_of`, before it proves
anything. A refusal is a text for people that makes sense in the logs of both nodes; the link sends
it in a REFUSE frame.

The payloads of HELLO and CHALLENGE are MAGIC and msgpack of `Hello`. A later version may add
fields; a reader ignores those it does not know.
"""

import hmac
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from warrenmq.cluster.links.frames import CHALLENGE, HELLO, PROOF, WELCOME
from warrenmq.cluster.links.link_secrets import LinkSecrets

MAGIC: Final = b"WARRENLK"
# Versions of the link's protocol that this release speaks, inclusive.
LINK_VERSION_MIN: Final = 2
LINK_VERSION_MAX: Final = 2
NONCE_BYTES: Final = 32
# Largest payload of a frame during the handshake (bytes): a stranger must not make a node buffer
# more.
HANDSHAKE_BYTES_MAX: Final = 4096
# Largest text of a refusal (characters).
REFUSAL_CHARACTERS_MAX: Final = 500

_Text = Annotated[str, Meta(max_length=255)]
_Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Identity(Struct, frozen=True):
    """A node as it introduces itself to others."""

    cluster_id: _Text
    cluster_name: _Text
    node_name: _Text
    # The data directory, which keeps its id when the node starts again.
    replica_id: _Text
    # The start of the node: a later start of the same node has a higher number.
    incarnation: _Number
    software_version: _Text
    # Newest version of the files in a data directory that the node writes.
    data_format: _Number
    version_min: _Number = LINK_VERSION_MIN
    version_max: _Number = LINK_VERSION_MAX


class Hello(Struct, frozen=True):
    """The contents of HELLO and CHALLENGE."""

    identity: Identity
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    # Number of the newest secret that the node has heard of.
    newest_secret: _Number = 0


class HandshakeError(Exception):
    """The other side is refused; the text says why."""


_DECODER: Final = msgspec.msgpack.Decoder(Hello)


class Handshake:
    """One side of one handshake.

    `expected_name` is the name of the dialled node; "" means that the other side has dialled.
    `admits` is asked about a node whose identity is in order: why it is refused, or "". `nonce` has
    NONCE_BYTES random bytes.
    """

    def __init__(
        self,
        own: Identity,
        secrets: LinkSecrets,
        nonce: bytes,
        expected_name: str,
        admits: Callable[[Identity], str],
    ) -> None:
        self.expected_name = expected_name
        # The identity that the other side claims; proved once `is_complete` is set.
        self.peer: Identity | None = None
        # Whether both sides have proved their identities. No frame may be received before.
        self.is_complete = False
        # Version that both sides speak.
        self.version = 0
        self._own = own
        self._secrets = secrets
        # The one of them that both sides use, once the other side has introduced itself.
        self._secret = b""
        self._admits = admits
        self._own_hello = MAGIC + msgspec.msgpack.encode(Hello(own, nonce, secrets.number))
        # HELLO and CHALLENGE, once both are known.
        self._hellos: tuple[bytes, bytes] | None = None
        self._awaited_kind = CHALLENGE if expected_name else HELLO

    @property
    def peer_name(self) -> str:
        """The name of the other node, as it was dialled or as it says; "" while it is not known."""
        if self.expected_name or self.peer is None:
            return self.expected_name
        return self.peer.node_name

    def hello(self) -> bytes:
        """The payload of the dialling side's first frame, HELLO."""
        return self._own_hello

    def receive(self, kind: int, payload: bytes) -> tuple[int, bytes] | None:
        """Take the next frame of the other side; returns the kind and payload of the answer.

        None: there is no answer, because the other side's WELCOME completed the handshake. Raises
        HandshakeError when the other side is refused.
        """
        if kind != self._awaited_kind:
            raise HandshakeError(f"a frame of kind {kind} is no part of a handshake")
        if kind == HELLO:
            self._hellos = (payload, self._own_hello)
            self._check(payload)
            self._awaited_kind = PROOF
            return CHALLENGE, self._own_hello
        if kind == CHALLENGE:
            self._hellos = (self._own_hello, payload)
            self._check(payload)
            self._awaited_kind = WELCOME
            return PROOF, self._proof(b"dialer")
        self._check_proof(payload, b"dialer" if kind == PROOF else b"acceptor")
        # The node may have changed its mind since: about its members, or because of another link.
        self._ask()
        self.is_complete = True
        return (WELCOME, self._proof(b"acceptor")) if kind == PROOF else None

    def _check(self, payload: bytes) -> None:
        if not payload.startswith(MAGIC):
            raise HandshakeError("the other side is no warren node")
        try:
            hello = _DECODER.decode(payload[len(MAGIC) :])
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise HandshakeError("the other side's introduction is malformed") from None
        self.peer = hello.identity
        fault = self._fault_of(self.peer)
        if fault:
            raise HandshakeError(fault)
        self._secret = self._secrets.shared_with(hello.newest_secret)
        if not self._secret:
            raise HandshakeError(
                f"{_of_node(self.peer)} has missed the last rotation of the cluster's secret"
            )
        self.version = min(self.peer.version_max, self._own.version_max)
        self._ask()

    def _fault_of(self, peer: Identity) -> str:
        own = self._own
        if peer.version_max < own.version_min or own.version_max < peer.version_min:
            return (
                f"{_of_node(peer)} (warren {peer.software_version}) speaks versions"
                f" {peer.version_min} to {peer.version_max} of the links, and {_of_node(own)}"
                f" (warren {own.software_version}) {own.version_min} to {own.version_max}"
            )
        if (peer.cluster_name, peer.cluster_id) != (own.cluster_name, own.cluster_id):
            return (
                f"{_of_node(peer)} belongs to cluster {peer.cluster_name} ({peer.cluster_id}),"
                f" and {_of_node(own)} to cluster {own.cluster_name} ({own.cluster_id})"
            )
        if peer.node_name == own.node_name:
            return f"both sides are named {own.node_name}"
        if self.expected_name not in ("", peer.node_name):
            return (
                f"{_of_node(own)} expected node {self.expected_name}"
                f" at the address of {_of_node(peer)}"
            )
        if peer.data_format > own.data_format:
            return (
                f"{_of_node(peer)} writes data of format {peer.data_format},"
                f" and {_of_node(own)} knows formats up to {own.data_format}"
            )
        return ""

    def _ask(self) -> None:
        assert self.peer is not None
        refusal = self._admits(self.peer)
        if refusal:
            raise HandshakeError(refusal)

    def _proof(self, role: bytes) -> bytes:
        assert self._hellos is not None
        hello, challenge = self._hellos
        text = b"%b %d %b%b" % (role, len(hello), hello, challenge)
        return hmac.digest(self._secret, text, "sha256")

    def _check_proof(self, proof: bytes, role: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(role)):
            assert self.peer is not None
            raise HandshakeError(
                f"{_of_node(self._own)} and {_of_node(self.peer)} have different secrets"
            )


def _of_node(identity: Identity) -> str:
    return f"node {identity.node_name}"


def printable(text: str) -> str:
    """`text` cut to REFUSAL_CHARACTERS_MAX and fit for one line of the log, whoever sent it."""
    kept = text[:REFUSAL_CHARACTERS_MAX]
    return "".join([character if character.isprintable() else "?" for character in kept])
