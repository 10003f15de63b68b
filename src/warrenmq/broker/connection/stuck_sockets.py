"""Finds connections whose clients do not read their sockets, and closes the worst of them (G6).

The node limits the bytes of large messages on their way to sockets: it has one room for all
(`queues/memory/transit.py`). Stuck sockets could fill this room, and the large messages of all
other connections would wait. So bytes for stuck sockets do not count, up to a second room of the
same size. Connections are closed when three conditions hold: the stuck bytes exceed that second
room, another client could take a message that waits for room, and the sockets have been stuck for
`close_after_ms`. Those with the most bytes are closed first. RabbitMQ has no such limit and ends in
its memory alarm, which stops every publisher.
"""

from mypy_extensions import i64

from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import CLOSED
from warrenmq.queues.memory.transit import Transit


def scan_sockets(connections: list[Connection], transit: Transit, now_ms: i64) -> None:
    """Update which sockets are stuck, and close some if they take room from others.

    Called about twice a second.
    """
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
        connection.abort(now_ms)


def _buffered_bytes(connection: Connection) -> int:
    return connection.out.buffered_bytes
