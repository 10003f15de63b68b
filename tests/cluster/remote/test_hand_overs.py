"""Dead letters, delayed and staged messages whose targets live on another node."""

import pytest

from tests.cluster.remote.conftest import far, near
from tests.cluster.remote.held_parties import HeldParties
from tests.cluster.remote.two_nodes import BACK, FRONT, TwoNodes
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.staged import staged_message
from warrenmq.broker.definitions.rights import NO_RIGHTS
from warrenmq.broker.vhost.sinks.stage import Author
from warrenmq.wire.properties import NO_PROPERTIES, Properties


def declare(
    cluster: TwoNodes, node: bytes, name: bytes, **arguments: object
) -> tuple[ChannelPeer, bytes]:
    """A channel at the back, and a queue on `node`."""
    cluster.place_at = node
    channel = near(cluster)
    channel.declare(name, durable=True, arguments=table(**arguments))
    return channel, name


def dying(cluster: TwoNodes, **arguments: object) -> ChannelPeer:
    """Queue `dying` at the back, whose dead letters go to the queue `dead` at the front."""
    declare(cluster, FRONT, b"dead")
    channel, _ = declare(
        cluster,
        BACK,
        b"dying",
        x__dead__letter__exchange="",
        x__dead__letter__routing__key="dead",
        **arguments,
    )
    return channel


def unacked(cluster: TwoNodes) -> int:
    """Messages that have left the queue `dying` and are not settled there."""
    return cluster.back.vhost.queues[b"dying"].backing.unacked.count


def reject_one(channel: ChannelPeer, properties: bytes) -> None:
    channel.publish(b"dying", b"letter", properties)
    channel.reject(channel.get(b"dying").got.delivery_tag, requeue=False)


@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT])
def test_a_dead_letter_goes_to_another_node(cluster: TwoNodes, properties: bytes) -> None:
    channel = dying(cluster)
    reject_one(channel, properties)
    letter = far(cluster).get(b"dead")
    assert letter.body == b"letter"
    headers = letter.properties.headers
    assert headers is not None and b"x-death" in headers
    assert unacked(cluster) == 0
    cluster.check()


def test_it_waits_for_the_node_to_come_back(cluster: TwoNodes) -> None:
    channel = dying(cluster)
    cluster.cut()
    reject_one(channel, PERSISTENT)
    cluster.advance(1000)
    assert unacked(cluster) == 1
    assert cluster.front.vhost.queues[b"dead"].ready_count == 0
    cluster.join()
    cluster.advance(1000)
    assert far(cluster).get(b"dead").body == b"letter"
    assert unacked(cluster) == 0


def test_it_is_sent_again_when_the_link_goes_before_the_confirm(cluster: TwoNodes) -> None:
    channel = dying(cluster)
    cluster.delay_ms = 20
    reject_one(channel, PERSISTENT)
    cluster.advance(10)
    cluster.cut()
    assert unacked(cluster) == 1
    cluster.join()
    cluster.advance(1000)
    assert cluster.front.vhost.queues[b"dead"].ready_count == 1
    assert unacked(cluster) == 0


def test_a_copy_that_waits_for_a_deleted_queue_is_dropped(cluster: TwoNodes) -> None:
    channel = dying(cluster)
    cluster.cut()
    reject_one(channel, PERSISTENT)
    vhost = cluster.back.vhost
    vhost.remove_remote_queue(vhost.remote_queues[b"dead"], cluster.back.now_ms)
    cluster.advance(1000)
    assert unacked(cluster) == 0


def test_a_full_target_refuses_a_dead_letter(cluster: TwoNodes) -> None:
    """It is dropped, as a target on the same node would drop it."""
    declare(cluster, FRONT, b"dead", x__max__length=1, x__overflow="reject-publish")
    arguments = {"x__dead__letter__exchange": "", "x__dead__letter__routing__key": "dead"}
    channel, _ = declare(cluster, BACK, b"dying", **arguments)
    for _ in range(2):
        reject_one(channel, PERSISTENT)
    cluster.advance(1000)
    assert cluster.front.vhost.queues[b"dead"].ready_count == 1
    assert unacked(cluster) == 0


def test_targets_on_both_nodes_get_a_dead_letter_each(cluster: TwoNodes) -> None:
    channel, _ = declare(cluster, BACK, b"dying", x__dead__letter__exchange="amq.fanout")
    for node in (FRONT, BACK):
        declare(cluster, node, b"dead at " + node)
        channel.bind(b"dead at " + node, b"amq.fanout")
    for number in range(3):
        reject_one(channel, PERSISTENT if number % 2 else NO_PROPERTIES)
    for node in (FRONT, BACK):
        assert len(channel.drain(b"dead at " + node)) == 3
    assert unacked(cluster) == 0
    cluster.check()


def test_a_delayed_message_goes_to_another_node_when_it_is_due(cluster: TwoNodes) -> None:
    channel, _ = declare(cluster, FRONT, b"q")
    channel.exchange(
        b"later", b"x-delayed-message", durable=True, arguments=table(x__delayed__type="fanout")
    )
    channel.bind(b"q", b"later")
    delayed = Properties(delivery_mode=2, headers=table(x__delay=500)).encode()
    channel.publish(b"", b"message", delayed, b"later")
    cluster.advance(400)
    assert channel.count(b"q") == 0
    cluster.cut()
    cluster.advance(1000)
    cluster.join()
    cluster.advance(1000)
    assert far(cluster).get(b"q").body == b"message"
    assert cluster.back.vhost.delayed.waiting_count() == 0


# -- mirrored queues -------------------------------------------------------------------------------


def mirror(cluster: TwoNodes, name: bytes) -> HeldParties:
    mirrors = HeldParties()
    vhost = cluster.back.vhost
    vhost.set_confirm_source(vhost.queues[name], mirrors)
    return mirrors


def test_a_dead_letter_waits_for_the_mirrors_of_its_queue(cluster: TwoNodes) -> None:
    channel, _ = declare(cluster, BACK, b"dead")
    arguments = {"x__dead__letter__exchange": "", "x__dead__letter__routing__key": "dead"}
    declare(cluster, BACK, b"dying", **arguments)
    mirrors = mirror(cluster, b"dead")
    reject_one(channel, PERSISTENT)
    cluster.advance(1000)
    assert (channel.count(b"dead"), unacked(cluster)) == (1, 1)
    # What a master that was deposed has sent is sent again.
    mirrors.refusing = True
    mirrors.decide(ok=False)
    cluster.advance(1000)
    assert (channel.count(b"dead"), unacked(cluster)) == (1, 1)
    mirrors.refusing = False
    cluster.advance(1000)
    assert (channel.count(b"dead"), unacked(cluster)) == (2, 1)
    mirrors.decide(ok=True)
    cluster.advance(1000)
    assert (channel.count(b"dead"), unacked(cluster)) == (2, 0)
    cluster.check()


def test_a_dead_letter_passes_a_full_mirrored_queue(cluster: TwoNodes) -> None:
    """It goes on as a dead letter of that queue, and waits for the mirrors of its last one."""
    letters = {"x__dead__letter__exchange": ""}
    channel, _ = declare(cluster, BACK, b"last")
    declare(
        cluster,
        BACK,
        b"full",
        x__max__length=0,
        x__overflow="reject-publish-dlx",
        x__dead__letter__routing__key="last",
        **letters,
    )
    declare(cluster, BACK, b"dying", x__dead__letter__routing__key="full", **letters)
    mirror(cluster, b"full")
    mirrors = mirror(cluster, b"last")
    reject_one(channel, PERSISTENT)
    cluster.advance(1000)
    assert (channel.count(b"last"), unacked(cluster)) == (1, 1)
    mirrors.decide(ok=True)
    cluster.advance(1000)
    assert (channel.count(b"last"), unacked(cluster)) == (1, 0)


def test_a_delayed_message_waits_for_the_mirrors_of_its_queue(cluster: TwoNodes) -> None:
    channel, _ = declare(cluster, BACK, b"q")
    channel.exchange(
        b"later", b"x-delayed-message", durable=True, arguments=table(x__delayed__type="fanout")
    )
    channel.bind(b"q", b"later")
    mirrors = mirror(cluster, b"q")
    delayed = Properties(delivery_mode=2, headers=table(x__delay=500)).encode()
    channel.publish(b"", b"message", delayed, b"later")
    cluster.advance(1000)
    waiting = cluster.back.vhost.delayed
    assert (channel.count(b"q"), waiting.waiting_count()) == (1, 1)
    mirrors.decide(ok=True)
    cluster.advance(1000)
    assert (channel.count(b"q"), waiting.waiting_count()) == (1, 0)


# -- sinks -----------------------------------------------------------------------------------------


def commit_batch(cluster: TwoNodes, messages: list[bytes]) -> None:
    """Commit a batch of a sink of the back; its messages have routing keys of their own."""
    staging = cluster.back.vhost.staging
    now_ms = cluster.back.now_ms
    author = Author(cluster.back.broker.access.account(b"guest"), NO_RIGHTS)
    client = object()
    stage = staging.open(b"sink", 0, client, now_ms, b"far")
    staging.stage_block(stage.queue.id, client, b"".join(messages), author, now_ms)
    finished: list[object] = []
    staging.finish(stage.queue.id, client, len(messages), finished.append, now_ms)
    cluster.pump()
    assert finished == [None]
    staging.commit(b"sink", 0, [stage.queue.id], {}, False, lambda _outcome, _reason: None)


def test_a_batch_of_a_sink_goes_to_another_node(cluster: TwoNodes) -> None:
    declare(cluster, FRONT, b"far")
    staging = cluster.back.vhost.staging
    staging.mover.slice_messages = 4
    cluster.delay_ms = 20
    commit_batch(cluster, [staged_message(b"%d" % number) for number in range(10)])
    cluster.advance(30)
    cluster.cut()
    cluster.advance(1000)
    assert staging.is_busy(b"sink")
    cluster.join()
    cluster.advance(1000)
    assert not staging.is_busy(b"sink")
    bodies = far(cluster).drain(b"far")
    # The first slice was there before the link went down, but not confirmed.
    first = [b"0", b"1", b"2", b"3"]
    assert bodies == [*first, *first, *(b"%d" % number for number in range(4, 10))]
