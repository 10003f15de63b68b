"""Messages of a cluster's sink on the way to queues of two nodes: each is there once."""

import pytest

from tests.cluster.remote.carried_slices import SINK_BIRTH, Carriers, copy_of
from tests.cluster.remote.conftest import near
from tests.cluster.remote.held_parties import HeldParties
from tests.cluster.remote.two_nodes import BACK, FRONT, TwoNodes
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.staged import staged_message
from warrenmq.cluster.sinks.calls import PIECE_BYTES
from warrenmq.queues.hand_out_gate import CLOSED, OPEN, HandOutGate
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.wire.properties import Properties


@pytest.fixture
def carriers(cluster: TwoNodes) -> Carriers:
    """Two nodes; the exchange `all` routes to the queues `near`, at the back, and `far`."""
    channel = near(cluster)
    channel.exchange(b"all", b"fanout", durable=True)
    for name, home in ((b"near", BACK), (b"far", FRONT)):
        cluster.place_at = home
        channel.declare(name, durable=True)
        channel.bind(name, b"all")
    return Carriers(cluster)


def messages(count: int, size: int = 1) -> list[bytes]:
    return [staged_message(b"%d" % number * size, b"", b"all") for number in range(count)]


def bodies(count: int, size: int = 1) -> list[bytes]:
    return [b"%d" % number * size for number in range(count)]


def test_every_queue_gets_each_message_once(carriers: Carriers) -> None:
    """Also when answers are lost, and slices come again."""
    carriers.calls[BACK].lost_answers = 2
    carriers.move(BACK, messages(10))
    carriers.pass_time(2000)
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(BACK, b"near") == bodies(10)
    assert carriers.bodies(FRONT, b"far") == bodies(10)


def test_large_bodies_come_in_pieces(carriers: Carriers) -> None:
    carriers.calls[BACK].lost_answers = 3
    carriers.move(BACK, messages(5, PIECE_BYTES * 2 + 7))
    carriers.pass_time(2000)
    assert carriers.bodies(FRONT, b"far") == bodies(5, PIECE_BYTES * 2 + 7)


def test_two_movers_at_once(carriers: Carriers) -> None:
    """A mover that was taken for dead goes on beside the one that took over."""
    carriers.calls[BACK].is_cut = True
    carriers.move(BACK, messages(10))
    carriers.move(FRONT, messages(10))
    carriers.pass_time()
    assert not carriers.is_moving(FRONT)
    carriers.calls[BACK].is_cut = False
    carriers.pass_time()
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(BACK, b"near") == bodies(10)
    assert carriers.bodies(FRONT, b"far") == bodies(10)


def test_a_take_over_does_not_send_everything_again(carriers: Carriers) -> None:
    """The first answer tells below which position everything is in its queues."""
    carriers.move(BACK, messages(40, 100))
    carriers.pass_time(3000)
    sent = carriers.calls[BACK].sent_bytes
    carriers.move(FRONT, messages(40, 100))
    carriers.pass_time(3000)
    assert not carriers.is_moving(FRONT)
    assert carriers.calls[FRONT].sent_bytes < sent / 2
    assert carriers.bodies(BACK, b"near") == bodies(40, 100)


def test_a_node_that_is_away_stops_the_next_slice_only(carriers: Carriers) -> None:
    carriers.calls[BACK].is_cut = True
    carriers.move(BACK, messages(10))
    carriers.pass_time()
    assert carriers.bodies(BACK, b"near") == bodies(4)
    assert carriers.is_moving(BACK)
    carriers.calls[BACK].is_cut = False
    carriers.pass_time()
    assert carriers.bodies(FRONT, b"far") == bodies(10)


def test_a_mover_is_refused_whose_sink_is_deleted(carriers: Carriers) -> None:
    """A node that has followed the sink's birth and does not know the sink takes it for deleted."""
    carriers.followed = SINK_BIRTH
    carriers.move(BACK, messages(3))
    carriers.pass_time()
    assert not carriers.bodies(FRONT, b"far")
    carriers.followed = SINK_BIRTH - 1
    carriers.pass_time()
    assert carriers.bodies(FRONT, b"far") == bodies(3)


def test_a_queue_that_is_deleted_is_not_waited_for(carriers: Carriers) -> None:
    carriers.calls[BACK].is_cut = True
    carriers.move(BACK, messages(10))
    carriers.pass_time()
    vhost = carriers.cluster.back.vhost
    vhost.remove_remote_queue(vhost.remote_queues[b"far"], carriers.timers.now_ms())
    carriers.pass_time()
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(BACK, b"near") == bodies(10)


def test_a_stage_that_is_dropped_is_delivered_no_more(carriers: Carriers) -> None:
    """Another mover has delivered its messages; what was under way takes no room any more."""
    carriers.calls[BACK].is_cut = True
    stage = carriers.move(BACK, messages(10))
    carriers.pass_time()
    staging = carriers.cluster.back.vhost.staging
    staging.drop([stage], carriers.timers.now_ms())
    carriers.pass_time()
    assert staging.mover.slices == []
    carriers.calls[BACK].is_cut = False
    carriers.pass_time()
    assert carriers.bodies(FRONT, b"far") == []


def test_a_mirrored_queue_is_waited_for(carriers: Carriers) -> None:
    """Its copies must confirm; too few of them let the messages wait with the mover."""
    mirrors = HeldParties()
    mirrors.refusing = True
    vhost = carriers.cluster.back.vhost
    vhost.set_confirm_source(vhost.queues[b"near"], mirrors)
    carriers.move(BACK, messages(4))
    carriers.pass_time()
    assert carriers.bodies(BACK, b"near") == []
    mirrors.refusing = False
    carriers.pass_time(250)
    assert carriers.bodies(BACK, b"near") == bodies(4)
    mirrors.decide(ok=False)
    carriers.pass_time(250)
    assert carriers.is_moving(BACK)
    mirrors.decide(ok=True)
    carriers.pass_time(250)
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(BACK, b"near") == bodies(4)
    assert carriers.bodies(FRONT, b"far") == bodies(4)


@pytest.mark.parametrize("gate", [OPEN, CLOSED])
@pytest.mark.parametrize("is_answered", [True, False])
def test_what_a_lost_master_may_have_handed_out_is_known(
    carriers: Carriers, gate: HandOutGate, is_answered: bool
) -> None:
    """Its copies never got it, so the next master takes it; nobody had it if a hand-over began."""
    mirrors = HeldParties()
    front, back = carriers.cluster.front, carriers.cluster.back
    far = front.vhost.queues[b"far"]
    front.vhost.set_confirm_source(far, mirrors)
    far.set_gate(gate)
    carriers.calls[BACK].lost_answers = 0 if is_answered else 1
    carriers.move(BACK, messages(4))
    carriers.pass_time(100)
    assert carriers.known_bodies(FRONT, b"far") == []
    # The back becomes the master, without the messages.
    copy = copy_of(back, far)
    copy.begin_epoch(2)
    now_ms = carriers.timers.now_ms()
    back.vhost.replace_taker(back.vhost.remote_queues[b"far"], copy, now_ms)
    mirrors.decide(ok=False)
    carriers.pass_time()
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(BACK, b"far") == bodies(4)
    is_exact = is_answered and gate is CLOSED
    assert carriers.known_bodies(BACK, b"far") == ([] if is_exact else bodies(4))


def test_what_was_never_sent_or_was_refused_is_not_known(carriers: Carriers) -> None:
    mirrors = HeldParties()
    mirrors.refusing = True
    front = carriers.cluster.front
    front.vhost.set_confirm_source(front.vhost.queues[b"far"], mirrors)
    carriers.calls[BACK].is_cut = True
    carriers.move(BACK, messages(4))
    carriers.pass_time()
    carriers.calls[BACK].is_cut = False
    carriers.pass_time()
    mirrors.refusing = False
    carriers.pass_time()
    assert carriers.bodies(FRONT, b"far") == bodies(4)
    assert carriers.known_bodies(FRONT, b"far") == []


def test_a_queue_that_becomes_mirrored_keeps_its_receipts(carriers: Carriers) -> None:
    """They go to its first copy, and count when that takes over."""
    cluster = carriers.cluster
    carriers.calls[BACK].is_cut = True
    carriers.move(BACK, messages(8))
    carriers.pass_time()
    # The queue is hidden, and taken over again by the same node, as the master of a group.
    back, front = cluster.back, cluster.front
    queue = back.vhost.queues[b"near"]
    now_ms = carriers.timers.now_ms()
    stand = back.vhost.new_remote_queue(queue.definition, BACK)
    stand.keep_consumers()
    back.vhost.replace_taker(queue, stand, now_ms)
    feed = RingFeed(queue, lambda: None)
    feed.begin(1, next_start(queue, 0))
    back.vhost.set_confirm_source(queue, HeldParties())
    back.vhost.replace_taker(stand, queue, now_ms)
    # The front gets a copy, and becomes the master.
    copy = copy_of(front, queue)
    applier = MirrorApplier(copy)
    applier.reopen(lambda: None)
    cluster.pump()
    applier.begin_sync(1, now_ms)
    feed.repeat(0, 1)
    applier.apply(feed.take(1), now_ms)
    for entry in queue.backing.peek(0, 100, 1 << 20):
        applier.fill(0, entry.seq, entry.message, 0, False, now_ms)
    assert applier.end_sync([(0, queue.next_seq)], now_ms)
    cluster.pump()
    feed.end()
    copy.begin_epoch(2)
    gone = back.vhost.new_remote_queue(queue.definition, FRONT, 2)
    back.vhost.replace_taker(queue, gone, now_ms)
    front.vhost.replace_taker(front.vhost.remote_queues[b"near"], copy, now_ms)
    carriers.calls[BACK].is_cut = False
    carriers.pass_time()
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(FRONT, b"near") == bodies(8)
    assert carriers.bodies(FRONT, b"far") == bodies(8)


def test_a_delayed_message_waits_with_the_mover(carriers: Carriers) -> None:
    """It gets its MOVE when the queues have theirs, so it waits once."""
    channel = near(carriers.cluster)
    channel.exchange(
        b"later", b"x-delayed-message", durable=True, arguments=table(x__delayed__type="fanout")
    )
    channel.bind(b"near", b"later")
    delayed = Properties(delivery_mode=2, headers=table(x__delay=500)).encode()
    carriers.move(BACK, [staged_message(b"0", b"", b"later", delayed), *messages(3)[1:]])
    carriers.pass_time(200)
    assert not carriers.is_moving(BACK)
    assert carriers.bodies(BACK, b"near") == bodies(3)[1:]
    carriers.pass_time(1000)
    assert carriers.bodies(BACK, b"near") == [b"1", b"2", b"0"]
