"""Finds the channels of a connection whose client lets them wait for too long.

A message whose body has stopped arriving and a delivery that nobody acks both hold memory that only
the client can free. RabbitMQ has no limit on the first; the second is its `consumer_timeout`.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.channel_host import ChannelHost
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException

# The time between two checks counts at most this much (ms): after a stall of the node, the socket
# may hold acks that the node has not read.
_ELAPSED_MAX_MS: Final = 1000


class ChannelDeadlines:
    """The deadlines of one connection's channels. Time in which it is not read does not count."""

    def __init__(self) -> None:
        self._checked_ms: i64 = 0
        # Time (ms) in which acks of the client could arrive, since the connection began.
        self._clock_ms: i64 = 0

    def expired(
        self, client: ChannelHost, channels: dict[int, Channel], frame_bytes: i64, now_ms: i64
    ) -> list[tuple[Channel, ChannelException]]:
        """The channels to close, with the reason of each; called about once a second.

        `frame_bytes` is the size of the frame that is arriving.
        """
        expired: list[tuple[Channel, ChannelException]] = []
        for number in client.throttle.find_stalled_bodies(client, frame_bytes, now_ms):
            seconds = client.node.settings.unfinished_message_timeout
            text = f"the body of a message has not gone on for {seconds} s"
            expired.append((channels[number], ChannelException(PRECONDITION_FAILED, text, 60, 40)))
        if client.is_reading and not client.is_unread:
            self._clock_ms += min(now_ms - self._checked_ms, _ELAPSED_MAX_MS)
        self._checked_ms = now_ms
        timeout_ms: i64 = client.node.settings.consumer_timeout_ms
        for channel in channels.values():
            if channel.unacked.is_overdue(self._clock_ms, timeout_ms):
                # The close names no method: none is at fault.
                channel.current_method = 0
                expired.append((channel, _unacked_for_too_long(channel.number, timeout_ms)))
        return expired


def _unacked_for_too_long(number: i64, timeout_ms: i64) -> ChannelException:
    return ChannelException(
        PRECONDITION_FAILED,
        f"delivery acknowledgement on channel {number} timed out. Timeout value used: {timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn more",
    )
