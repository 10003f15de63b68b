"""Connections that do not read their sockets: whose bytes take no room from others, and which are closed (G6).

The node has a room for large messages on their way to sockets (`queues/transit.py`). Connections whose sockets stand
still could fill it, and the large messages of everybody else would wait for them. So their bytes do not count, up to a
second room of the same size. When they are more than that, somebody else could take a message that waits for room, and
they have stood still for `close_after_ms`, those that hold most are closed. RabbitMQ bounds nothing here and ends in its
memory alarm, which stops every publisher.
"""

from mypy_extensions import i64

from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSED
from warrenmq.queues.transit import Transit


def scan_sockets(connections: list[Connection], transit: Transit, now_ms: i64) -> None:
    """Find out which sockets stand still, and close some if they keep room from others; called about twice a second."""
    for connection in connections:
        connection.out.note_progress(now_ms)
    excess = transit.stuck_bytes - transit.room_bytes
    if excess <= 0 or not transit.is_wanted():
        return
    stuck: list[Connection] = []
    for connection in connections:
        if connection.state != CLOSED and connection.out.stuck_ms(now_ms) >= transit.close_after_ms:
            stuck.append(connection)
    for connection in sorted(stuck, key=_buffered_bytes, reverse=True):
        if excess <= 0:
            break
        size = connection.out.buffered_bytes
        excess -= size
        connection.log.socket_stuck(size, connection.out.stuck_ms(now_ms) // 1000)
        connection.give_up(now_ms)


def _buffered_bytes(connection: Connection) -> int:
    return connection.out.buffered_bytes
