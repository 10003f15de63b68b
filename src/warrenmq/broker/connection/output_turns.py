"""The turns of consumers and channels that wait until a connection's output has room."""

from collections import deque
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.channel.channel import ChannelConsumer
from warrenmq.broker.channel.channel_host import ChannelHost
from warrenmq.broker.flow.flow_host import FlowHost

# Deliveries to one consumer before the next consumer that waits for output room gets its turn.
TURN_MESSAGES: Final = 32


class OutputTurns:
    """The turns in one connection. Its waiting consumers are in its `rotation`."""

    def __init__(self) -> None:
        # Channels that are suspended until the content they sent is written; None before the first
        # one, because an empty deque takes as much memory as a whole channel.
        self._channels: deque[FlowHost] | None = None
        self._is_consumers_turn: bool = False

    def add(self, channel: FlowHost) -> None:
        """Let the suspended `channel` wait."""
        if self._channels is None:
            self._channels = deque()
        self._channels.append(channel)

    def serve(self, client: ChannelHost, now_ms: i64) -> None:
        """Serve those who wait, as long as the output of `client` has room."""
        channels = self._channels
        if channels is not None and len(channels) > 0:
            # Consumers and answering channels can each fill all room alone: they alternate in
            # coming first.
            self._is_consumers_turn = not self._is_consumers_turn
            if self._is_consumers_turn:
                _serve_consumers(client, now_ms)
            while len(channels) > 0 and client.can_take():
                channels.popleft().resume(now_ms)
        _serve_consumers(client, now_ms)


def _serve_consumers(client: ChannelHost, now_ms: i64) -> None:
    rotation = client.rotation
    if rotation.count == 0:
        return
    client.now_ms = now_ms
    while client.can_take():
        consumer = rotation.take()
        if consumer is None:
            return
        assert isinstance(consumer, ChannelConsumer)
        consumer.channel.room.give_turn(consumer, rotation, TURN_MESSAGES, now_ms)
