"""One link: frames in order and whole, heartbeats, and a peer that is trusted with nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mypy_extensions import i64

from tests.cluster.links.pairs import (
    FROM,
    TO,
    Recorder,
    TestNode,
    connect,
    connected,
    identity,
    output,
    shuttle,
)
from warrenmq.cluster.links.frames import CHUNK_BYTES, CONTROL, DATA, PAYLOAD_BYTES_MAX, REFUSE
from warrenmq.cluster.links.link import HANDSHAKE_MS, HEARTBEAT_MS, SILENCE_MS, WRITABLE_BYTES, Link

lanes = st.sampled_from([CONTROL, DATA])
sizes = st.one_of(st.integers(0, 20), st.sampled_from([5000, CHUNK_BYTES, 3 * CHUNK_BYTES + 5]))
sends = st.tuples(st.booleans(), lanes, sizes)
moves = st.tuples(st.booleans(), st.integers(1, 2 * CHUNK_BYTES))


@given(st.lists(st.one_of(sends, moves), max_size=40))
def test_nothing_is_lost_and_each_lane_keeps_its_order(
    steps: list[tuple[bool, int, int] | tuple[bool, int]],
) -> None:
    """Random sends on both sides, while the network moves random pieces of both streams."""
    one, other, *ends = connected()
    handlers = (one.handler, other.handler)
    # Payloads by sender and lane, and bytes that a sender's socket has taken.
    sent: list[list[list[bytes]]] = [[[], []], [[], []]]
    network = [b"", b""]
    for number, step in enumerate(steps):
        side = int(step[0])
        if len(step) == 3:
            lane, size = step[1], step[2]
            size = min(size, CHUNK_BYTES) if lane == CONTROL else size
            payload = number.to_bytes(2, "big") * (size // 2)
            sent[side][lane].append(payload)
            ends[side].send(lane, 16 + lane, payload)
        else:
            if not network[side]:
                network[side] = b"".join(ends[side].take_output())
            ends[1 - side].receive(network[side][: step[1]], 0)
            network[side] = network[side][step[1] :]
    for side in (0, 1):
        ends[1 - side].receive(network[side] + output(ends[side]), 0)
        arrived = handlers[1 - side].frames
        for lane in (CONTROL, DATA):
            assert [p for kind, p in arrived if kind == 16 + lane] == sent[side][lane]
        assert ends[side].unsent_bytes == 0


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_no_bytes_raise_an_exception(data: bytes, is_in_frame: bool, is_up: bool) -> None:
    """Random bytes, and random frames, end the link with a reason or wait for more."""
    if is_up:
        node, _, link, _ = connected()
    else:
        node = TestNode(identity("a@one"))
        link = node.links.dialled("b@two", TO, 0)
    if is_in_frame and data:
        data = len(data[1:]).to_bytes(4, "big") + data
    link.receive(data, 0)
    if link.is_down:
        assert node.links.link_to("b@two") is None
        assert len(node.handler.reasons) == int(is_up)
        assert output(link)[4:5] in (b"", bytes([REFUSE]))
    else:
        assert node.handler.reasons == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\0\x09", "a frame of kind 9"),
        (b"\0\0\0\0\x01", "a frame of kind 1"),
        (b"\xff\xff\xff\xff\x10", "a frame of kind 16 has 4294967295 bytes"),
    ],
)
def test_a_fault_ends_the_link_on_both_sides(data: bytes, reason: str) -> None:
    one, other, end, far_end = connected()
    end.receive(data, 0)
    shuttle(end, far_end)
    text = f"the other side broke the protocol of the links: {reason}"
    assert one.handler.reasons == [text]
    assert other.handler.reasons == [f"ended by the other side: {text}"]


def test_bytes_behind_a_fault_are_ignored() -> None:
    one, _, end, _ = connected()
    end.receive(b"\0\0\0\0\x09" + b"\0\0\0\0\x10", 0)
    end.receive(b"\0\0\0\0\x10", 0)
    assert one.handler.frames == []


def test_a_stranger_cannot_make_a_node_buffer_much() -> None:
    """Before the handshake is complete, frames are small, and chunked payloads too."""
    for data in (b"\0\0\x10\x01\x10", b"\0\0\0\5\7\x10\0\0\x10\x01"):
        link = TestNode(identity("b@two")).links.accepted(FROM, 0)
        link.receive(data, 0)
        assert link.is_down


def test_frames_of_handlers_before_the_handshake_reach_no_handler() -> None:
    node = TestNode(identity("b@two"))
    link = node.links.accepted(FROM, 0)
    link.receive(b"\0\0\0\0\x10", 0)
    assert link.is_down and node.handler.frames == []


class Fastidious(Recorder):
    """Cannot read any frame."""

    def on_frame(self, link: Link, kind: i64, payload: bytes) -> None:
        super().on_frame(link, kind, payload)
        link.close("unreadable")


def test_a_handler_may_close_the_link_in_the_midst_of_frames() -> None:
    one, other = TestNode(identity("a@one"), handler=Fastidious()), TestNode(identity("b@two"))
    end, far_end = connect(one, other)
    for _ in range(3):
        far_end.send(DATA, 20, b"")
    shuttle(end, far_end)
    assert one.handler.frames == [(20, b"")]
    assert one.handler.reasons == ["unreadable"]
    assert other.handler.reasons == ["ended by the other side: unreadable"]


def test_what_is_sent_on_a_dead_link_is_dropped() -> None:
    _, _, end, _ = connected()
    end.send(DATA, 16, bytes(2 * CHUNK_BYTES))
    end.take_output()
    end.lost("reset")
    end.send(CONTROL, 16, b"x")
    end.send(DATA, 16, b"x")
    assert (end.unsent_bytes, end.take_output()) == (0, [])


@pytest.mark.parametrize(
    ("lane", "kind", "size"),
    [(CONTROL, 15, 0), (DATA, 256, 0), (CONTROL, 16, CHUNK_BYTES + 1), (2, 16, 0)],
)
def test_frames_that_cannot_be_sent_are_our_mistake(lane: int, kind: int, size: int) -> None:
    _, _, end, _ = connected()
    with pytest.raises(AssertionError):
        end.send(lane, kind, bytes(size))
    assert end.take_output() == []


def test_the_largest_message_fits() -> None:
    assert PAYLOAD_BYTES_MAX > 536870912 + CHUNK_BYTES


def test_writable_until_too_much_is_unsent() -> None:
    """Both the bytes in the link and those in the socket's buffer count."""
    _, _, end, _ = connected()
    end.send(DATA, 16, bytes(WRITABLE_BYTES - 6))
    assert (end.unsent_bytes, end.is_writable) == (WRITABLE_BYTES - 1, True)
    end.set_socket_bytes(1)
    assert (end.unsent_bytes, end.is_writable) == (WRITABLE_BYTES, False)
    output(end)
    assert (end.unsent_bytes, end.is_writable) == (1, True)


def test_a_ping_every_heartbeat_whatever_else_is_sent() -> None:
    node, _, end, _ = connected()
    ping = b"\0\0\0\x10\6"
    found = []
    for now_ms in range(0, 4 * HEARTBEAT_MS, 50):
        node.links.tick(now_ms)
        end.send(DATA, 16, b"")
        if ping in output(end):
            found.append(now_ms)
    assert found == [0, HEARTBEAT_MS, 2 * HEARTBEAT_MS, 3 * HEARTBEAT_MS]


def test_pings_keep_an_idle_link_up() -> None:
    one, other, end, far_end = connected()
    for now_ms in range(0, 5 * SILENCE_MS, HEARTBEAT_MS):
        one.links.tick(now_ms)
        other.links.tick(now_ms)
        shuttle(end, far_end, now_ms)
    assert end.is_up and far_end.is_up
    assert one.handler.frames == []


def test_a_side_knows_which_of_its_pings_have_arrived() -> None:
    one, other, end, far_end = connected()
    one.links.tick(HEARTBEAT_MS)
    shuttle(end, far_end, HEARTBEAT_MS)
    assert end.echoed_ms == 0, "the other side has sent nothing since"
    other.links.tick(HEARTBEAT_MS)
    shuttle(end, far_end, HEARTBEAT_MS)
    assert end.echoed_ms == HEARTBEAT_MS
    # From now on only one direction works: what comes tells nothing new of what has arrived.
    for now_ms in range(2 * HEARTBEAT_MS, 5 * HEARTBEAT_MS, HEARTBEAT_MS):
        one.links.tick(now_ms)
        output(end)
        other.links.tick(now_ms)
        shuttle(end, far_end, now_ms)
    assert end.silence_ms == 0 and end.echoed_ms == HEARTBEAT_MS


def test_an_echo_from_the_future_counts_as_one_of_now() -> None:
    _one, _other, end, _far_end = connected()
    end.receive(b"\0\0\0\x10\6" + bytes(8) + (1 << 60).to_bytes(8, "big"), 700)
    assert end.echoed_ms == 700
    end.receive(b"\0\0\0\x10\6" + bytes(8) + (-5).to_bytes(8, "big", signed=True), 800)
    assert end.echoed_ms == 700
    end.receive(b"\0\0\0\0\6", 900)
    assert end.is_down


def test_silence_ends_the_link_with_nothing_more_to_send() -> None:
    node, _, end, _ = connected()
    end.send(DATA, 16, bytes(3 * CHUNK_BYTES))
    now_ms = 0
    while end.is_up:
        now_ms += 100
        node.links.tick(now_ms)
    assert now_ms == SILENCE_MS
    assert node.handler.reasons == ["the other side has been silent for 3000 ms"]
    assert end.take_output() == []


def test_any_byte_counts_as_a_sign_of_life() -> None:
    """A large payload that arrives slowly keeps the link up before it is complete."""
    node, _, end, _ = connected()
    end.receive(b"\0\1\0\0\x10", 0)
    for now_ms in range(SILENCE_MS // 2, 5 * SILENCE_MS, SILENCE_MS // 2):
        for tick_ms in range(now_ms, now_ms + SILENCE_MS // 2, 100):
            node.links.tick(tick_ms)
        end.receive(b"x", now_ms)
    assert end.is_up


def test_a_loop_that_stood_still_does_not_blame_the_other_side() -> None:
    """Bytes of that time may wait in the socket: the next ticks decide."""
    node, _, end, _ = connected()
    node.links.tick(100)
    node.links.tick(100 + 10 * SILENCE_MS)
    assert end.is_up
    end.receive(output(end), 100 + 10 * SILENCE_MS)
    node.links.tick(200 + 10 * SILENCE_MS)
    assert end.is_up


@pytest.mark.parametrize("is_dialled", [True, False])
def test_a_handshake_that_takes_too_long(is_dialled: bool) -> None:
    node = TestNode(identity("a@one"))
    link = node.links.dialled("b@two", TO, 7) if is_dialled else node.links.accepted(FROM, 7)
    downs = []
    for now_ms in (6 + HANDSHAKE_MS, 7 + HANDSHAKE_MS):
        node.links.tick(now_ms)
        downs.append(link.is_down)
    assert downs == [False, True]
    assert node.handler.reasons == []
