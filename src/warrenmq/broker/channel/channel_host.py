"""The interface of a connection to its channels."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.channel.client import Client
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.flow.disk_flow import NOTHING
from warrenmq.broker.flow.flow_host import FlowHost
from warrenmq.broker.flow.room import ChannelRoom
from warrenmq.broker.flow.rotation import Rotation
from warrenmq.broker.flow.throttle import Throttle, ThrottleHost
from warrenmq.broker.output import Output
from warrenmq.broker.vhost.node_services import NodeServices
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.method import Method

# Gathered output (bytes) above which a connection's consumers wait until it is written.
OUTPUT_BYTES_MAX: Final = 262144


class ChannelHost(ThrottleHost):
    """The connection of a client to `node`, as far as its channels use it."""

    def __init__(self, node: NodeServices, now_ms: i64) -> None:
        settings = node.settings
        throttle = Throttle(
            node.alarms, node.memory_account, settings.unfinished_message_timeout * 1000
        )
        super().__init__(Output(node.memory_account.transit), throttle, now_ms)
        self.node: NodeServices = node
        self.max_message_size: i64 = settings.max_message_size
        self.client: Client = Client()
        # Messages published since the end of the last turn: NOTHING, TRANSIENT or PERSISTENT.
        self.published: i64 = NOTHING
        # Consumers that wait until the output in `out` is written.
        self.rotation: Rotation = Rotation()

    def can_take(self) -> bool:
        """True while the output has room for one more delivery."""
        return self.is_writable and self.out.size_bytes < OUTPUT_BYTES_MAX

    def announce(self, event: str) -> None:
        """Tell the listener, if there is one, of an event of the connection."""
        if self.node.events is not None:
            self.node.events(event, self, b"", self.client.user_name)

    def full_name(self) -> str:
        """The connection's name for people: `HOST:PORT -> HOST:PORT`, the client's end first."""
        raise RuntimeError("abstract")

    def wait_for_room(self, channel: FlowHost) -> None:
        """Suspend `channel`, which has sent content, while the output has no room.

        Without this, a client that gets and returns one message over and over, and never reads its
        socket, would fill the broker's memory.
        """
        raise RuntimeError("abstract")

    def has_room_for_reply(self, size: i64) -> bool:
        """Count a direct reply of `size` bytes; False when the client leaves too many unread.

        The caller drops a reply for which there is no room.
        """
        raise RuntimeError("abstract")

    def confirm_later(self, confirms: PublishConfirms) -> None:
        """Send the finished confirms of `confirms` at the end of this turn."""
        raise RuntimeError("abstract")

    def serve_later(self, room: ChannelRoom) -> None:
        """Serve the acked queue of `room` when all frames that came together are handled."""
        raise RuntimeError("abstract")

    def channel_method(self, number: i64, method: Method) -> None:
        """Handle a method of the open channel `number` outside of the hot path."""
        raise RuntimeError("abstract")

    def refuse(self, number: i64, error: AmqpError) -> None:
        """Close the open channel `number`, or the connection, for `error`.

        For a refusal that comes after the method: an answer of the disk or of another node.
        """
        raise RuntimeError("abstract")

    def replay(self, number: i64) -> None:
        """Handle the kept frames of the open channel `number`, until it is suspended again."""
        raise RuntimeError("abstract")
