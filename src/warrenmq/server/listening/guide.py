"""Finds out, from a client's first frames, which of several nodes on a machine has its queue.

A client that shares a port of several workers is accepted by any of them. The one that has its
queue serves it for a third of the CPU time. So the others hand the client over before its first
consume, get or publish (`steering.py`), and until then they note the frames from which the next
worker can build the same connection: the handshake, open channels and their modes.

Frames that change what the whole broker has, such as declarations, are carried out where the client
is, and are not noted. A client that does something else stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.frames import FRAME_HEARTBEAT, FRAME_METHOD
from warrenmq.wire.methods import (
    BASIC_QOS,
    CHANNEL_OPEN,
    CONFIRM_SELECT,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    EXCHANGE_DECLARE,
    BasicConsume,
    BasicGet,
    BasicPublish,
    QueueBind,
    QueueDeclare,
    decode_method,
)

# Most frames of a client that has not shown its queue.
FRAMES_MAX: Final = 200
# Longest frame among them (bytes); with the replay of all it fits into a message to a worker.
FRAME_BYTES_MAX: Final = 16_384
REPLAY_BYTES_MAX: Final = 65_536
_HEAD_BYTES: Final = 7
_NOTED: Final = (
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    CONNECTION_OPEN,
    CHANNEL_OPEN,
    BASIC_QOS,
    CONFIRM_SELECT,
)

# What is to happen to a frame: the client's worker carries it out, and the client may still move
# (GO_ON); or it stays for good (STAY). Numbers from 0 on are workers that should have the client.
GO_ON: Final = -1
STAY: Final = -2


class Guide:
    """Guides one client; `workers` are the numbers of the other workers by their names."""

    def __init__(self, workers: Mapping[bytes, int]) -> None:
        self._workers = workers
        self._rest = b""
        self._frames_count = 0
        # The frames from which another worker can build the connection.
        self.replay = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the client."""
        self._rest += data

    def next_frame(self) -> bytes:
        """The next frame if it is complete, else b""."""
        size = _HEAD_BYTES + int.from_bytes(self._rest[3:_HEAD_BYTES], "big") + 1
        if len(self._rest) < size:
            return b""
        frame, self._rest = self._rest[:size], self._rest[size:]
        return frame

    @property
    def rest(self) -> bytes:
        """The bytes after the frames so far."""
        return self._rest

    def is_patient(self) -> bool:
        """Whether an incomplete frame is one to wait for."""
        return int.from_bytes(self._rest[3:_HEAD_BYTES], "big") <= FRAME_BYTES_MAX

    def judge(self, frame: bytes, connection: Connection) -> int:
        """Tell what is to happen to the frame, which `connection` has not seen yet."""
        self._frames_count += 1
        if frame[0] == FRAME_HEARTBEAT:
            return GO_ON
        too_much = self._frames_count > FRAMES_MAX or len(self.replay) > REPLAY_BYTES_MAX
        if frame[0] != FRAME_METHOD or too_much:
            return STAY
        method_id = int.from_bytes(frame[_HEAD_BYTES : _HEAD_BYTES + 4], "big")
        if method_id in _NOTED:
            self.replay += frame
            return GO_ON
        if method_id == EXCHANGE_DECLARE:
            return GO_ON
        vhost = connection.vhost
        if vhost is None:
            return STAY
        try:
            method = decode_method(frame, _HEAD_BYTES, len(frame) - 1)
        except ConnectionException:
            return STAY
        if isinstance(method, QueueBind):
            return GO_ON
        if isinstance(method, QueueDeclare):
            if method.exclusive:
                # It lives with its connection.
                return STAY
            home = self._home_of(method.queue, vhost)
            return GO_ON if home == STAY else home
        if isinstance(method, BasicPublish):
            return self._target_of(method, vhost)
        if isinstance(method, BasicConsume | BasicGet):
            channel = connection.channels.get(int.from_bytes(frame[1:3], "big"))
            return self._home_of(method.queue or (channel.last_queue if channel else b""), vhost)
        return STAY

    def _home_of(self, name: bytes, vhost: Vhost) -> int:
        """The worker that has a queue; STAY if it is not at another worker."""
        queue = vhost.remote_queues.get(name)
        if queue is None or queue.home.session is None:
            return STAY
        return self._workers.get(queue.home.name, STAY)

    def _target_of(self, method: BasicPublish, vhost: Vhost) -> int:
        """The worker that has the queues of a message; STAY if some are here, or nobody can say."""
        if not method.exchange:
            return self._home_of(method.routing_key, vhost)
        exchange = vhost.router.exchanges.get(method.exchange)
        if exchange is None or vhost.router.depends_on_message(exchange):
            return STAY
        queues = vhost.route(exchange, [method.routing_key], b"")
        homes = [
            self._home_of(queue.name, vhost) if isinstance(queue, RemoteQueue) else STAY
            for queue in queues
        ]
        # Of several workers any is as good.
        return homes[0] if homes and STAY not in homes else STAY
