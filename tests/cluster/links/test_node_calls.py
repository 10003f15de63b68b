"""Calls between two nodes over a link without sockets."""

from collections.abc import Callable

import msgspec
import pytest
from mypy_extensions import i64

from tests.cluster.links.pairs import Recorder, TestNode, connect, identity, shuttle
from warrenmq.cluster.links import node_calls
from warrenmq.cluster.links.link import WRITABLE_BYTES, Link
from warrenmq.cluster.links.node_calls import (
    ANSWER_BYTES_MAX,
    ANSWER_MS,
    NODE_CALL,
    PIECE_BYTES,
    REQUEST_BYTES_MAX,
    NodeCalls,
)

NOW_MS = 1000


class Echo:
    """Answers with the request `factor` times, at once or when `release` is called."""

    def __init__(self) -> None:
        self.factor = 1
        self.is_late = False
        self.waiting: list[Callable[[], None]] = []

    def answer(self, node: str, request: bytes, reply: Callable[[bytes], None]) -> None:
        self.waiting.append(lambda: reply(node.encode() + b" " + request * self.factor))
        if not self.is_late:
            self.release()

    def release(self) -> None:
        for answer in self.waiting:
            answer()
        self.waiting.clear()


class CallsOnLinks(Recorder):
    """The calls of a node, on its links."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = NodeCalls(lambda: None)
        self.echo = Echo()
        self.calls.answerer = self.echo.answer

    def on_up(self, link: Link) -> None:
        self.calls.link_up(link)

    def on_frame(self, link: Link, kind: i64, payload: bytes) -> None:
        if kind == NODE_CALL:
            self.calls.take_call(link.peer_name, payload)
        else:
            self.calls.take_answer(link.peer_name, payload, NOW_MS)

    def on_down(self, link: Link, reason: str) -> None:
        self.calls.link_down(link.peer_name)


class Pair:
    """Two nodes, linked; the first one asks."""

    def __init__(self) -> None:
        self.one, self.other = CallsOnLinks(), CallsOnLinks()
        self.links = connect(
            TestNode(identity("a@one"), handler=self.one),
            TestNode(identity("b@two"), handler=self.other),
        )
        self.answers: list[tuple[bytes, str]] = []

    def ask(self, request: bytes) -> None:
        self.one.calls.ask("b@two", request, NOW_MS, lambda *answer: self.answers.append(answer))

    def run(self) -> None:
        """Move bytes and end turns until nothing moves any more."""
        for _ in range(ANSWER_BYTES_MAX // WRITABLE_BYTES + 2):
            shuttle(*self.links)
            self.other.calls.end_turn()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_each_call_gets_its_own_answer(pair: Pair) -> None:
    for request in (b"x", b"y"):
        pair.ask(request)
    pair.run()
    assert pair.answers == [(b"a@one x", ""), (b"a@one y", "")]


@pytest.mark.parametrize("size", [PIECE_BYTES - 7, PIECE_BYTES, 40 * PIECE_BYTES + 1])
def test_an_answer_of_any_size_arrives_whole(pair: Pair, size: int) -> None:
    pair.other.echo.factor = size
    pair.ask(b"x")
    pair.run()
    assert pair.answers == [(b"a@one " + b"x" * size, "")]


def test_a_long_answer_leaves_room_on_the_link(pair: Pair) -> None:
    """Pieces wait in the answer, not in the link, where messages would wait behind them."""
    pair.other.echo.factor = 8 * WRITABLE_BYTES
    pair.ask(b"x")
    shuttle(*pair.links)
    pair.other.calls.end_turn()
    assert pair.links[1].unsent_bytes < WRITABLE_BYTES + 2 * PIECE_BYTES


def test_too_much_is_refused_on_both_ways(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=str(REQUEST_BYTES_MAX)):
        pair.ask(bytes(REQUEST_BYTES_MAX + 1))
    monkeypatch.setattr(node_calls, "ANSWER_BYTES_MAX", 100)
    pair.other.echo.factor = 101
    pair.ask(b"x")
    pair.run()
    assert [failure.split(",")[0] for _, failure in pair.answers] == ["the answer has 107 bytes"]


def test_a_call_without_a_link_ends_at_once(pair: Pair) -> None:
    pair.one.calls.ask("c@three", b"", NOW_MS, lambda *answer: pair.answers.append(answer))
    assert pair.answers == [(b"", "there is no link to node c@three")]


def test_a_call_ends_with_its_link(pair: Pair) -> None:
    pair.other.echo.is_late = True
    pair.ask(b"x")
    pair.run()
    pair.links[0].lost("gone")
    assert [failure for _, failure in pair.answers] == [
        "the link to node b@two was lost before it answered"
    ]
    # The other end does not know yet; its answer finds no way.
    pair.other.echo.release()


def test_a_silent_node_costs_a_few_seconds_and_its_late_answer_is_ignored(pair: Pair) -> None:
    pair.other.echo.is_late = True
    pair.ask(b"x")
    pair.run()
    pair.one.calls.tick(NOW_MS + ANSWER_MS - 1)
    assert pair.answers == []
    pair.one.calls.tick(NOW_MS + ANSWER_MS)
    assert [failure for _, failure in pair.answers] == ["node b@two has not answered within 5 s"]
    pair.other.echo.release()
    pair.run()
    assert len(pair.answers) == 1


def test_a_node_that_is_not_ready_says_so(pair: Pair) -> None:
    pair.other.calls.answerer = None
    pair.ask(b"x")
    pair.run()
    assert [failure for _, failure in pair.answers] == ["the node is not ready yet"]


@pytest.mark.parametrize("payload", [b"", b"\x93\x01\x02", b"\xc1"])
def test_malformed_frames_are_told_to_the_caller(pair: Pair, payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        pair.one.calls.take_call("b@two", payload)
    with pytest.raises(msgspec.DecodeError):
        pair.one.calls.take_answer("b@two", payload, NOW_MS)
