"""Calls between nodes: one node asks another something over their link, and gets one answer.

NODE_CALL     a call: its number and the request
NODE_ANSWER   a piece of the answer to a call

Requests and answers are bytes that the users of the calls understand. A request, and an answer of
at most PIECE_BYTES, is one CONTROL frame. A longer answer travels in pieces. While much waits to be
sent to a node, the next piece waits for a later turn, so that no message waits behind the answer.

A call ends once: with the answer, when its link is lost, or when nothing has come for some time.
Whether the other node has carried out what it was asked is unknown in the last two cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from warrenmq.cluster.links.frames import CONTROL, DATA
from warrenmq.cluster.links.link import Link

# Kinds of frames.
NODE_CALL: Final = 48
NODE_ANSWER: Final = 49

# How long a call waits for a piece of its answer, unless its caller knows better (ms).
ANSWER_MS: Final = 5000
# Bytes of the largest request and of the largest answer.
REQUEST_BYTES_MAX: Final = 96 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024

# Takes the answer and "", or b"" and why there is none.
Answered = Callable[[bytes, str], None]
# Carries out a request of a node, and passes the answer on, once, now or later.
Answerer = Callable[[str, bytes, Callable[[bytes], None]], None]


class _Call(msgspec.Struct, frozen=True, array_like=True):
    number: int
    request: bytes


class _Piece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of an answer. A `failure` ends the call without an answer."""

    number: int
    data: bytes
    is_last: bool
    failure: str = ""


_Frame = TypeVar("_Frame", _Call, _Piece)


class _Asked:
    """A call of this node that has no whole answer yet."""

    def __init__(self, done: Answered, now_ms: int, wait_ms: int) -> None:
        self.done = done
        self.wait_ms = wait_ms
        self.deadline_ms = now_ms + wait_ms
        self.answer = bytearray()


class _Sending:
    """An answer of which pieces wait to be sent."""

    def __init__(self, number: int, answer: bytes) -> None:
        self.number = number
        self.answer = answer
        self.sent_bytes = 0

    def next_piece(self) -> _Piece:
        """The next piece, which counts as sent."""
        start = self.sent_bytes
        self.sent_bytes = min(start + PIECE_BYTES, len(self.answer))
        is_last = self.sent_bytes == len(self.answer)
        return _Piece(self.number, self.answer[start : self.sent_bytes], is_last)


class _Peer:
    """The node at the other end of `link`."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.asked: dict[int, _Asked] = {}
        self.sending: deque[_Sending] = deque()


class NodeCalls:
    """The calls over all links of a node. `wake` asks for the end of a turn."""

    def __init__(self, wake: Callable[[], None]) -> None:
        # Answers calls of other nodes; until there is one, calls are refused.
        self.answerer: Answerer | None = None
        self._wake = wake
        self._peers: dict[str, _Peer] = {}
        self._last_number = 0

    def ask(
        self,
        node: str,
        request: bytes,
        now_ms: int,
        done: Answered,
        wait_ms: int = ANSWER_MS,
    ) -> None:
        """Ask `node`; `done` is called once, perhaps at once.

        `wait_ms`: how long to wait for the first piece of the answer, and for each further one.
        ValueError: the request has more than REQUEST_BYTES_MAX.
        """
        if len(request) > REQUEST_BYTES_MAX:
            raise ValueError(f"a request to another node has at most {REQUEST_BYTES_MAX} bytes")
        peer = self._peers.get(node)
        if peer is None:
            done(b"", f"there is no link to node {node}")
            return
        self._last_number += 1
        peer.asked[self._last_number] = _Asked(done, now_ms, wait_ms)
        call = _Call(self._last_number, request)
        peer.link.send(CONTROL, NODE_CALL, msgspec.msgpack.encode(call))
        self._wake()

    # -- links -------------------------------------------------------------------------------------

    def has_link(self, node: str) -> bool:
        """Whether a call would be sent to `node`."""
        return node in self._peers

    def link_up(self, link: Link) -> None:
        """There is a link to another node."""
        self._peers[link.peer_name] = _Peer(link)

    def link_down(self, node: str) -> None:
        """The link to `node` is lost: its calls end."""
        peer = self._peers.pop(node)
        for asked in peer.asked.values():
            asked.done(b"", f"the link to node {node} was lost before it answered")

    def take_call(self, node: str, payload: bytes) -> None:
        """Answer a call of `node`. Raises msgspec.DecodeError."""
        call = _decoded(payload, _Call)
        peer = self._peers[node]
        if self.answerer is None:
            self._send(peer, _Piece(call.number, b"", True, "the node is not ready yet"))
            return
        self.answerer(node, call.request, lambda answer: self._on_answer(peer, call.number, answer))

    def take_answer(self, node: str, payload: bytes, now_ms: int) -> None:
        """Take a piece of an answer of `node`. Raises msgspec.DecodeError."""
        piece = _decoded(payload, _Piece)
        asked = self._peers[node].asked
        call = asked.get(piece.number)
        if call is None:
            # The call has ended without it.
            return
        call.answer += piece.data
        call.deadline_ms = now_ms + call.wait_ms
        if piece.is_last or len(call.answer) > ANSWER_BYTES_MAX:
            del asked[piece.number]
            failure = piece.failure
            if not piece.is_last:
                failure = _too_large(len(call.answer))
            call.done(b"" if failure else bytes(call.answer), failure)

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Send pieces of long answers, to each node as many as its link has room for."""
        for peer in self._peers.values():
            while peer.sending and peer.link.is_writable:
                sending = peer.sending[0]
                piece = sending.next_piece()
                if piece.is_last:
                    peer.sending.popleft()
                peer.link.send(DATA, NODE_ANSWER, msgspec.msgpack.encode(piece))

    def tick(self, now_ms: int) -> None:
        """End calls whose time is over; called about every 50 ms."""
        for node, peer in self._peers.items():
            for number, asked in list(peer.asked.items()):
                if asked.deadline_ms <= now_ms:
                    del peer.asked[number]
                    seconds = asked.wait_ms // 1000
                    asked.done(b"", f"node {node} has not answered within {seconds} s")

    def _on_answer(self, peer: _Peer, number: int, answer: bytes) -> None:
        if len(answer) > ANSWER_BYTES_MAX:
            self._send(peer, _Piece(number, b"", True, _too_large(len(answer))))
        elif len(answer) <= PIECE_BYTES:
            self._send(peer, _Piece(number, answer, True))
        else:
            peer.sending.append(_Sending(number, answer))
            self._wake()

    def _send(self, peer: _Peer, piece: _Piece) -> None:
        # A link that is lost drops it.
        peer.link.send(CONTROL, NODE_ANSWER, msgspec.msgpack.encode(piece))
        self._wake()


def _decoded(payload: bytes, type: type[_Frame]) -> _Frame:
    try:
        return msgspec.msgpack.decode(payload, type=type)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _too_large(size: int) -> str:
    return f"the answer has {size} bytes, more than the {ANSWER_BYTES_MAX} that a node may send"
