"""Process ids in RabbitMQ's look, which identify connections, channels and queues of a node.

RabbitMQ shows Erlang's: `<rabbit@host.1795224932.1316.0>`. Here the first number is the kind (1 to
3), the second the connection's number (the log has it in `<0.7.0>`) or the queue's id, and the
third the channel's number. A pid is unique until the node starts again, and names its node.

    <warren@host.1.7.0>   connection 7
    <warren@host.1.7.3>   channel 3 of this connection
    <warren@host.2.9.0>   the queue with id 9
    <warren@host.3.7.4>   a mirror of a queue (`mirror_pid` in broker/mirrors.py)

protocol/pids.py reads them.
"""

from warrenmq.broker.broker import Broker
from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.connection.connection import Connection
from warrenmq.queues.queue import Queue


def connection_pid(broker: Broker, connection: Connection) -> str:
    """The pid of a connection."""
    return f"<{broker.settings.node_name}.1.{connection.number}.0>"


def channel_pid(broker: Broker, channel: Channel) -> str:
    """The pid of a channel."""
    connection = channel.connection
    assert isinstance(connection, Connection)
    return f"<{broker.settings.node_name}.1.{connection.number}.{channel.number}>"


def queue_pid(broker: Broker, queue: Queue) -> str:
    """The pid of a queue."""
    return f"<{broker.settings.node_name}.2.{queue.id}.0>"
