"""A paused queue hands out nothing and loses nothing; it resumes at once, and in order."""

from tests.cluster.model_cluster import Cluster, queue
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.definitions.metadata import DeleteParameter, PutParameter
from warrenmq.broker.vhost.pauses import QUEUE_PAUSE, pause_key, pause_value
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.settings import QueueSettings


def channel_of(memory: MemoryBroker) -> ChannelPeer:
    return Peer(memory.connect()).open().channel()


def pause(memory: MemoryBroker, name: bytes) -> str:
    """Pause a queue, and let a turn pass; returns what resumes it."""
    key = pause_key(memory.vhost.queues[name].definition)
    memory.vhost.put_parameter(QUEUE_PAUSE, key, pause_value(name))
    memory.pump()
    return key


def resume(memory: MemoryBroker, key: str) -> None:
    memory.vhost.delete_parameter(QUEUE_PAUSE, key)
    memory.pump()


def test_deliveries_stop_and_resume_in_order() -> None:
    memory = MemoryBroker()
    channel, other = channel_of(memory), channel_of(memory)
    channel.declare(b"q")
    channel.qos(2)
    channel.consume(b"q", b"c")
    channel.publish_each(b"q", b"0", b"1", b"2")
    assert channel.bodies(2) == [b"0", b"1"]
    key = pause(memory, b"q")
    other.publish_each(b"q", b"3", b"4")
    channel.nack(2)
    channel.ack(1)
    # Not even a requeued message comes, nor one to a client that asks for it.
    channel.quiet()
    assert other.is_empty(b"q") and other.count(b"q") == 4
    resume(memory, key)
    assert channel.bodies(2) == [b"1", b"2"]
    channel.ack(4, multiple=True)
    assert channel.bodies(2) == [b"3", b"4"]
    memory.vhost.check()


def test_publishes_to_an_empty_paused_queue_wait() -> None:
    memory = MemoryBroker()
    channel = channel_of(memory)
    channel.declare(b"q")
    channel.consume(b"q", b"c", no_ack=True)
    key = pause(memory, b"q")
    channel.publish_each(b"q", b"0", b"1")
    channel.quiet()
    resume(memory, key)
    assert channel.bodies(2) == [b"0", b"1"]


def test_expiry_dead_letters_and_limits_go_on() -> None:
    memory = MemoryBroker()
    channel = channel_of(memory)
    channel.declare(b"dead")
    dead = {"x__dead__letter__exchange": b"", "x__dead__letter__routing__key": b"dead"}
    channel.declare(b"q", arguments=table(x__message__ttl=1000, x__max__length=2, **dead))
    pause(memory, b"q")
    channel.publish_each(b"q", b"0", b"1", b"2")
    assert channel.drain(b"dead") == [b"0"] and channel.count(b"q") == 2
    memory.advance(2000)
    assert channel.drain(b"dead") == [b"1", b"2"] and channel.count(b"q") == 0


def test_a_queue_declared_anew_is_not_paused() -> None:
    memory = MemoryBroker()
    channel = channel_of(memory)
    channel.declare(b"q")
    pause(memory, b"q")
    channel.delete(b"q")
    channel.declare(b"q")
    channel.publish_each(b"q", b"0")
    assert channel.get(b"q").body == b"0"


def test_a_new_master_is_paused_as_the_old_one_was() -> None:
    memory = MemoryBroker()
    vhost = memory.vhost
    declared = QueueDefinition(b"q", 0, True, False, None, b"", QueueSettings(), 7)
    remote = vhost.add_remote_queue(declared, b"other")
    vhost.put_parameter(QUEUE_PAUSE, pause_key(declared), pause_value(b"q"))
    here = QueueDefinition(b"q", 5, True, False, None, b"", QueueSettings(), 7)
    copy = vhost.add_hidden_queue(here, memory.now_ms)
    vhost.replace_taker(remote, copy, memory.now_ms)
    assert copy.is_paused
    vhost.replace_taker(copy, vhost.new_remote_queue(declared, b"other"), memory.now_ms)
    assert not copy.is_paused


def test_all_nodes_of_a_cluster_know_of_a_pause() -> None:
    cluster = Cluster()
    one, two, three = cluster.nodes
    one.propose(queue(b"q"))
    cluster.settle()
    key = pause_key(three.vhost.remote_queues[b"q"].definition)
    three.propose(PutParameter(b"/", QUEUE_PAUSE, key, pause_value(b"q")))
    cluster.settle()
    assert key == pause_key(one.vhost.queues[b"q"].definition)
    two.propose(DeleteParameter(b"/", QUEUE_PAUSE, key))
    cluster.settle()
    assert [node.outcomes for node in (two, three)] == [[""], [""]]
