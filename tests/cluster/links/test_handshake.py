"""Only nodes of one cluster that fit together get a link; others read why, once, in both logs."""

import hashlib
import hmac
import logging
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cluster.links.pairs import (
    FROM,
    SECRET,
    TO,
    TestNode,
    connect,
    connected,
    identity,
    output,
    shuttle,
)
from warrenmq.cluster.links.frames import CHALLENGE, HELLO, PROOF, REFUSE, WELCOME
from warrenmq.cluster.links.handshake import MAGIC, Handshake, HandshakeError, Hello, Identity
from warrenmq.cluster.links.link_secrets import LinkSecrets
from warrenmq.cluster.links.links import STRANGER_MS

A, B = identity("a@one"), identity("b@two")


def without_peers(node: TestNode) -> None:
    node.links.set_peers({}, 0)


def nothing(node: TestNode) -> None:
    pass


@pytest.mark.parametrize(
    ("dialler", "secret", "change", "text"),
    [
        (A, b"guessed", nothing, "node b@two and node a@one have different secrets"),
        (
            replace(A, cluster_name="red"),
            SECRET,
            nothing,
            "node a@one belongs to cluster red (5f2d), and node b@two to cluster blue (5f2d)",
        ),
        (
            replace(A, cluster_id="77aa"),
            SECRET,
            nothing,
            "node a@one belongs to cluster blue (77aa), and node b@two to cluster blue (5f2d)",
        ),
        (
            replace(A, version_min=3, version_max=4, software_version="0.9.0"),
            SECRET,
            nothing,
            "node a@one (warren 0.9.0) speaks versions 3 to 4 of the links, and node b@two (warren 0.1.0) 2 to 2",
        ),
        (A, SECRET, without_peers, "node b@two does not know node a@one"),
        (replace(A, node_name="b@two"), SECRET, nothing, "both sides are named b@two"),
        (
            replace(A, data_format=2),
            SECRET,
            nothing,
            "node a@one writes data of format 2, and node b@two knows formats up to 1",
        ),
    ],
    ids=["secret", "cluster", "cluster id", "version", "unknown", "same name", "data format"],
)
def test_the_accepting_node_refuses(
    caplog: pytest.LogCaptureFixture,
    dialler: Identity,
    secret: bytes,
    change: Callable[[TestNode], None],
    text: str,
) -> None:
    """Nothing is joined, and each log has one line, however often the dial is repeated."""
    node, other = TestNode(dialler, secret), TestNode(B)
    change(other)
    with caplog.at_level(logging.INFO, "warren.cluster"):
        for now_ms in (0, 1000, STRANGER_MS):
            one, two = connect(node, other, now_ms)
            assert one.is_down and two.is_down
    assert caplog.messages == [
        f"no link from 10.0.0.1: {text}",
        f"no link to node b@two at {TO}: ended by the other side: {text}",
    ]
    assert (node.handler.frames, node.handler.reasons) == (other.handler.frames, []) == ([], [])


@pytest.mark.parametrize(
    ("acceptor", "change", "text"),
    [
        (identity("c@three"), nothing, "node a@one expected node b@two at the address of node c@three"),
        (replace(B, data_format=2), nothing, "node b@two writes data of format 2, and node a@one knows formats up to 1"),
        (B, without_peers, "node a@one does not know node b@two"),
    ],
    ids=["other node", "data format", "unknown"],
)  # fmt: skip
def test_the_dialling_node_refuses(
    caplog: pytest.LogCaptureFixture,
    acceptor: Identity,
    change: Callable[[TestNode], None],
    text: str,
) -> None:
    node, other = TestNode(A), TestNode(acceptor)
    change(node)
    with caplog.at_level(logging.INFO, "warren.cluster"):
        for now_ms in (0, 1000, STRANGER_MS):
            one, two = connect(node, other, now_ms)
            assert one.is_down and two.is_down
    assert caplog.messages == [
        f"no link to node b@two at {TO}: {text}",
        f"no link from 10.0.0.1: ended by the other side: {text}",
    ]


def test_the_highest_common_version_is_used() -> None:
    node, other = TestNode(replace(A, version_max=7)), TestNode(replace(B, version_max=5))
    assert [end.version for end in connect(node, other)] == [5, 5]


def handshake(own: Identity, expected_name: str, nonce: bytes = bytes(32)) -> Handshake:
    return Handshake(own, LinkSecrets(0, SECRET), nonce, expected_name, lambda peer: "")


def hello(nonce: bytes = bytes(32)) -> bytes:
    """A HELLO that is put together without the handshake."""
    return MAGIC + msgspec.msgpack.encode(Hello(A, nonce))


def test_a_proof_is_of_both_sides_and_of_the_role() -> None:
    """The documented HMAC is accepted; that of the other role, or of another nonce, is not."""

    def prove(role: bytes, first: bytes, second: bytes) -> bytes:
        text = role + b" %d " % len(first) + first + second
        return hmac.new(SECRET, text, hashlib.sha256).digest()

    ours = hello()
    for role, nonce, is_right in (
        (b"dialer", bytes(32), True),
        (b"acceptor", bytes(32), False),
        (b"dialer", b"\1" * 32, False),
    ):
        side = handshake(B, "")
        answer = side.receive(HELLO, ours)
        assert answer is not None and answer[0] == CHALLENGE
        proof = prove(role, hello(nonce), answer[1])
        if is_right:
            assert side.receive(PROOF, proof) == (WELCOME, prove(b"acceptor", ours, answer[1]))
        else:
            with pytest.raises(HandshakeError, match="different secrets"):
                side.receive(PROOF, proof)
        assert side.is_complete == is_right


def test_a_proof_that_is_sent_back_to_its_author_is_refused() -> None:
    """A stranger who answers with the dialling side's own words does not know the secret."""
    side = handshake(A, "b@two")
    challenge = MAGIC + msgspec.msgpack.encode(Hello(B, bytes(32)))
    answer = side.receive(CHALLENGE, challenge)
    assert answer is not None and answer[0] == PROOF
    with pytest.raises(HandshakeError, match="different secrets"):
        side.receive(WELCOME, answer[1])


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        (HELLO, b"HTTP/1.1", "the other side is no warren node"),
        (HELLO, MAGIC, "the other side's introduction is malformed"),
        (HELLO, MAGIC + b"\xc1", "the other side's introduction is malformed"),
        (HELLO, hello(bytes(31)), "the other side's introduction is malformed"),
        (HELLO, MAGIC + msgspec.msgpack.encode({"nonce": bytes(32)}), "the other side's introduction is malformed"),
        (CHALLENGE, hello(), "a frame of kind 2 is no part of a handshake"),
        (PROOF, bytes(32), "a frame of kind 3 is no part of a handshake"),
        (WELCOME, bytes(32), "a frame of kind 4 is no part of a handshake"),
        (REFUSE + 4, b"", "a frame of kind 9 is no part of a handshake"),
        (16, b"", "a frame of kind 16 is no part of a handshake"),
    ],
)  # fmt: skip
def test_what_is_no_handshake(kind: int, payload: bytes, text: str) -> None:
    with pytest.raises(HandshakeError, match=text):
        handshake(B, "").receive(kind, payload)


def test_fields_of_a_later_version_are_ignored() -> None:
    later = msgspec.msgpack.decode(hello()[len(MAGIC) :])
    later["colour"] = "blue"
    later["identity"]["shape"] = "round"
    answer = handshake(B, "").receive(HELLO, MAGIC + msgspec.msgpack.encode(later))
    assert answer is not None and answer[0] == CHALLENGE


@given(st.integers(0, 3), st.integers(0, 1_000_000), st.integers(0, 7))
def test_no_bit_of_a_handshake_can_be_changed(step: int, at: int, bit: int) -> None:
    """Whatever bit changes on the way, the two sides do not both come up."""
    node, other = TestNode(A), TestNode(B)
    dialling, accepting = node.links.dialled("b@two", TO, 0), other.links.accepted(FROM, 0)
    for turn in range(4):
        sender, receiver = (dialling, accepting) if turn % 2 == 0 else (accepting, dialling)
        data = bytearray(output(sender))
        if turn == step and data:
            data[at % len(data)] ^= 1 << bit
        receiver.receive(bytes(data), 0)
    assert not (dialling.is_up and accepting.is_up)


def test_the_text_of_a_refusal_cannot_forge_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = TestNode(A)
    link = node.links.dialled("b@two", TO, 0)
    text = "no\n2026-01-01 [info] all is well\x1b[2J" + "x" * 1000
    link.receive(len(text).to_bytes(4, "big") + bytes([REFUSE]) + text.encode(), 0)
    assert link.is_down
    (message,) = caplog.messages
    assert message.startswith(f"no link to node b@two at {TO}: ended by the other side: no?2026")
    assert message.isprintable() and len(message) < 600


def test_after_the_handshake_the_members_are_asked_again() -> None:
    """A node that was forgotten between its introduction and its proof gets no link."""
    node, other = TestNode(A), TestNode(B)
    dialling, accepting = node.links.dialled("b@two", TO, 0), other.links.accepted(FROM, 0)
    accepting.receive(output(dialling), 0)
    other.links.set_peers({}, 0)
    shuttle(dialling, accepting)
    assert dialling.is_down and accepting.is_down


def test_both_sides_know_each_other() -> None:
    _, _, one, other = connected()
    assert (one.peer, other.peer) == (B, A)
    assert (one.peer_name, other.peer_name) == ("b@two", "a@one")


OLD, NEW = SECRET, b"made by the rotation"
# A node that has not heard of the rotation, one in the midst of it, and one after its end.
BEFORE, DURING, AFTER = LinkSecrets(4, OLD), LinkSecrets(5, NEW, OLD), LinkSecrets(5, NEW)


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        (BEFORE, DURING, ""),
        (DURING, BEFORE, ""),
        (DURING, DURING, ""),
        (DURING, AFTER, ""),
        (AFTER, DURING, ""),
        (BEFORE, AFTER, "node a@one has missed the last rotation of the cluster's secret"),
        (AFTER, BEFORE, "node b@two has missed the last rotation of the cluster's secret"),
        (DURING, LinkSecrets(5, b"guessed", OLD), "have different secrets"),
        (DURING, LinkSecrets(4, b"guessed"), "have different secrets"),
        (DURING, LinkSecrets(3, OLD), "node b@two has missed the last rotation"),
    ],
)
def test_a_rotation_cuts_off_those_who_miss_all_of_it(
    first: LinkSecrets, second: LinkSecrets, fault: str
) -> None:
    """A node that hears of the new secret late has links all the same; a guess never helps."""
    node, other = TestNode(A), TestNode(B)
    node.links.secrets, other.links.secrets = first, second
    one, two = connect(node, other)
    assert (one.is_up, two.is_up) == (not fault, not fault)
    reasons = [*node.links._faults.values(), *other.links._faults.values()]
    assert not fault or all([fault in reason for reason in reasons]), reasons
