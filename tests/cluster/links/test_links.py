"""All links of a node: who dials, when it dials again, and one link for each pair."""

import logging

import pytest

from tests.cluster.links.pairs import ADDRESSES, FROM, TO, TestNode, connect, connected, identity
from warrenmq.cluster.links.frames import CONTROL
from warrenmq.cluster.links.links import HANDSHAKES_MAX, PAUSE_MIN_MS, STABLE_MS, STRANGER_MS


def test_the_node_whose_name_sorts_lower_dials() -> None:
    one, other = TestNode(identity("a@one")), TestNode(identity("b@two"))
    assert one.links.take_dials(0) == [("b@two", ADDRESSES["b@two"])]
    assert other.links.take_dials(0) == []
    # The dial is under way.
    assert one.links.take_dials(10_000) == []


def dial_times(node: TestNode, until_ms: int) -> list[int]:
    """When `node` dials, while nobody answers."""
    times = []
    for now_ms in range(0, until_ms, 100):
        node.links.tick(now_ms)
        for name, _ in node.links.take_dials(now_ms):
            node.links.dial_failed(name, TO, "Connection refused", now_ms)
            times.append(now_ms)
    return times


def test_the_pause_before_a_dial_grows(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line for all attempts that fail for the same reason."""
    node = TestNode(identity("a@one"))
    assert dial_times(node, 25_000) == [0, 500, 1500, 3500, 7500, 12500, 17500, 22500]
    assert caplog.messages == [f"no link to node b@two at {TO}: Connection refused"]
    node.links.dial_failed("b@two", TO, "No route to host", 25_000)
    node.links.dial_failed("b@two", TO, "Connection refused", 25_000)
    assert len(caplog.messages) == 3


def test_a_refused_handshake_pauses_like_a_dial_that_fails() -> None:
    one, other = TestNode(identity("a@one")), TestNode(identity("b@two"), b"another secret")
    assert len(one.links.take_dials(0)) == 1
    connect(one, other)
    assert one.links.take_dials(PAUSE_MIN_MS - 1) == []
    assert len(one.links.take_dials(PAUSE_MIN_MS)) == 1
    connect(one, other, PAUSE_MIN_MS)
    assert one.links.take_dials(3 * PAUSE_MIN_MS - 1) == []
    assert len(one.links.take_dials(3 * PAUSE_MIN_MS)) == 1


@pytest.mark.parametrize(("up_ms", "pause_ms"), [(STABLE_MS, 0), (STABLE_MS - 1, PAUSE_MIN_MS)])
def test_a_stable_link_is_dialled_again_at_once(up_ms: int, pause_ms: int) -> None:
    """One that is lost soon is not: a fault that comes back each time must not keep nodes busy."""
    one, other = TestNode(identity("a@one")), TestNode(identity("b@two"))
    one.links.take_dials(0)
    end, _ = connect(one, other)
    assert one.links.take_dials(up_ms) == []
    for now_ms in range(0, up_ms, 500):
        one.links.tick(now_ms)
        end.receive(b"\0\0\0\x10\6" + bytes(16), now_ms)
    one.links.tick(up_ms)
    end.lost("reset")
    assert (one.links.take_dials(up_ms) == []) == (pause_ms > 0)
    assert pause_ms == 0 or len(one.links.take_dials(up_ms + pause_ms)) == 1


def test_the_log_tells_of_links_that_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    """A link that was up lets the same fault be logged again."""
    node, other = TestNode(identity("a@one")), TestNode(identity("b@two"))
    with caplog.at_level(logging.INFO, "warren.cluster"):
        for _ in range(2):
            node.links.dial_failed("b@two", TO, "Connection refused", 0)
            end, _ = connect(node, other)
            end.lost("reset")
    refused = f"no link to node b@two at {TO}: Connection refused"
    up = f"link to node b@two at {TO} is up (warren 0.1.0, version 2 of the links)"
    down = f"link to node b@two at {TO} is down: reset"
    assert [line for line in caplog.messages if "b@two" in line] == [refused, up, down] * 2


def test_a_node_that_has_just_started_may_be_unknown_for_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It dials as soon as it has announced itself, and others hear of it a moment later."""
    node, other = TestNode(identity("a@one")), TestNode(identity("b@two"))
    other.links.set_peers({}, 0)
    unknown = "node b@two does not know node a@one"
    for now_ms in (0, STRANGER_MS - 1):
        assert connect(node, other, now_ms)[0].is_down
    assert caplog.messages == []
    other.links.set_peers(ADDRESSES, STRANGER_MS)
    end, _ = connect(node, other, STRANGER_MS)
    assert end.is_up
    # It is forgotten while it goes on, and counts as new again.
    other.links.set_peers({}, 10_000)
    end.lost("reset")
    caplog.clear()
    for now_ms in (10_000, 10_000 + STRANGER_MS - 1, 10_000 + STRANGER_MS):
        assert caplog.messages == []
        connect(node, other, now_ms)
    assert caplog.messages == [
        f"no link from 10.0.0.1: {unknown}",
        f"no link to node b@two at {TO}: ended by the other side: {unknown}",
    ]


def test_a_link_is_found_by_name_while_it_is_up() -> None:
    one, other, end, far_end = connected()
    assert one.links.link_to("b@two") is end and other.links.link_to("a@one") is far_end
    assert one.handler.up == [end]
    end.lost("reset")
    assert one.links.link_to("b@two") is None
    assert one.links.link_to("c@three") is None
    assert (one.handler.up, one.handler.reasons) == ([], ["reset"])


@pytest.mark.parametrize("incarnation", [1, 2])
def test_a_newer_connection_replaces_a_half_open_one(incarnation: int) -> None:
    """The other node started again, or lost its end of the connection: either way it dials."""
    _, other, _, half_open = connected()
    end, far_end = connect(TestNode(identity("a@one", incarnation)), other)
    assert end.is_up and far_end.is_up and half_open.is_down
    assert other.links.link_to("a@one") is far_end
    assert other.handler.up == [far_end]
    assert other.handler.reasons == ["node a@one has made another link"]


def test_an_older_incarnation_is_refused() -> None:
    """Of two nodes with one name the one that started later keeps its link."""
    other = TestNode(identity("b@two"))
    later, _ = connect(TestNode(identity("a@one", 2)), other)
    end, _ = connect(TestNode(identity("a@one", 1)), other)
    assert end.is_down and later.is_up
    assert other.handler.reasons == []


def test_an_impostor_does_not_disturb_a_link() -> None:
    one, other, end, far_end = connected()
    connect(TestNode(identity("a@one", 9), b"guessed"), other)
    assert far_end.is_up and other.links.link_to("a@one") is far_end
    # Nor does one that accepts the dials of a node make it dial more often.
    pretender, _ = connect(one, TestNode(identity("b@two", 9), b"guessed"))
    assert pretender.is_down and one.links.link_to("b@two") is end


def test_a_node_that_is_forgotten_loses_its_link() -> None:
    one, _, end, _ = connected()
    one.links.set_peers({}, 0)
    assert end.is_down and one.links.link_to("b@two") is None
    assert one.handler.reasons == ["node a@one does not know node b@two any more"]
    assert one.links.take_dials(60_000) == []
    one.links.dial_failed("b@two", TO, "Connection refused", 60_000)


def test_a_node_that_moved_is_dialled_at_its_new_address() -> None:
    """Its link lives on until then."""
    one, _, end, _ = connected()
    moved = ADDRESSES | {"b@two": ("10.0.0.9", 25672)}
    one.links.set_peers(moved, 0)
    assert end.is_up
    end.lost("reset")
    assert one.links.take_dials(PAUSE_MIN_MS) == [("b@two", ("10.0.0.9", 25672))]


def test_links_with_output_are_dirty_once() -> None:
    one, _, end, _ = connected()
    one.links.take_dirty()
    end.send(CONTROL, 16, b"")
    end.send(CONTROL, 16, b"")
    assert one.links.take_dirty() == [end]
    assert one.links.take_dirty() == []
    end.take_output()
    end.send(CONTROL, 16, b"")
    assert one.links.take_dirty() == [end]
    end.lost("reset")
    assert one.links.take_dirty() == [end]


def test_a_node_that_stops_says_so() -> None:
    one, other, end, far_end = connected()
    arriving = one.links.accepted(FROM, 0)
    one.links.close("node a@one stops")
    assert end.is_down and arriving.is_down
    far_end.receive(b"".join(end.take_output()), 0)
    assert other.handler.reasons == ["ended by the other side: node a@one stops"]
    assert one.links.take_dials(60_000) == []


def test_accepted_connections_are_bounded_until_they_say_who_they_are() -> None:
    node = TestNode(identity("b@two"))
    arriving = [node.links.accepted(FROM, 0) for _ in range(HANDSHAKES_MAX)]
    assert not node.links.has_room
    arriving[0].lost("reset")
    assert node.links.has_room
