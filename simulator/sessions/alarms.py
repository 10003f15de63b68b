"""Alarms in a history, and the publishes that clients send during an alarm.

A node defers such publishes (`broker/flow/alarms.py`) and confirms none of them before all alarms
are over. Then it handles them: connections in the order in which they connected, and the channels
of a connection in the order of their first deferred publish. The oracle learns of a publish when
the node handles it, so any effect before that looks like a message that nobody published. A crash
or a lost connection drops deferred publishes.
"""

from __future__ import annotations

from typing import Final, Protocol

from simulator.models.messages import Violation
from simulator.operations import DISK_ALARM
from simulator.sessions.states import ChannelModel, Publish
from simulator.simulated.file_system import PLENTY
from simulator.simulated.node import SimulatedNode
from warrenmq.broker.connection.connection import Connection
from warrenmq.broker.connection.states import RUNNING

# Operations for a channel whose publishes are deferred: any other would wait for an answer.
PASSING: Final = ("publish", "publish_large", "publish_to", "ack", "nack")


class Publishers(Protocol):
    """The clients as publishers."""

    channels: dict[int, ChannelModel]

    def take_effect(self, channel: ChannelModel, publish: Publish, before: dict[int, int]) -> None:
        """The node handles `publish`; see `PublishSessions`."""


class AlarmSessions:
    """The alarms of one node, and the publishes that it defers."""

    def __init__(self, node: SimulatedNode, publishers: Publishers) -> None:
        self._node = node
        self._publishers = publishers
        self._is_memory_on = False
        self._is_disk_on = False
        # Channels with deferred publishes, in the order in which the first of each was sent.
        self._holding: list[ChannelModel] = []
        # Next seq id of each queue, by queue id, before the node handled deferred publishes this
        # turn.
        self._next_seqs: dict[int, int] = {}
        # The node has handled deferred publishes since the flag was last cleared.
        self.has_released = False
        node.releases = self

    @property
    def is_on(self) -> bool:
        """True while any alarm is on."""
        return self._is_memory_on or self._is_disk_on

    def set(self, kind: int, is_on: bool) -> None:
        """Let the node measure too little memory or disk, or enough."""
        broker = self._node.broker
        if kind == DISK_ALARM:
            self._is_disk_on = is_on
            broker.disk_free(0 if is_on else PLENTY, self._node.now_ms)
        else:
            self._is_memory_on = is_on
            broker.memory_used(
                broker.alarms.memory_limit_bytes + 1 if is_on else 0, self._node.now_ms
            )

    def end_all(self) -> None:
        """End all alarms."""
        for kind in range(DISK_ALARM + 1):
            self.set(kind, False)

    def defers(self, channel: ChannelModel) -> bool:
        """Whether the node must defer the next publish on `channel`."""
        if channel.deferred:
            return True
        if (channel.publishes or channel.settles) and not self._is_disk_on:
            # A memory alarm does not defer the publishes of an open transaction: only its commit or
            # rollback frees its memory.
            return False
        return self.is_on or any(other.client is channel.client for other in self._holding)

    def defer(self, channel: ChannelModel, publish: Publish) -> None:
        """Add `publish` to the publishes that the node must defer on `channel`."""
        if not channel.deferred:
            self._holding.append(channel)
        channel.deferred.append(publish)

    # -- turns -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare for the moment at which the node may handle deferred publishes."""
        self._holding = [channel for channel in self._holding if self._is_there(channel)]
        if self._holding:
            self._next_seqs = {
                int(queue.id): int(queue.next_seq) for queue in self._node.vhost.queues.values()
            }
            for channel in self._holding:
                if not channel.client.engine.throttle.is_blocked:
                    raise Violation(
                        "alarm", f"a publish on channel {channel.number} was not held back"
                    )

    def end(self) -> None:
        """Report the deferred publishes that the node has handled since `begin` to the oracle."""
        if not self._holding:
            return
        before = {
            int(queue.id): self._next_seqs[int(queue.id)] - int(queue.next_seq)
            for queue in self._node.vhost.queues.values()
        }
        for connection in self._node.broker.connections:
            if not connection.throttle.is_blocked:
                self._release(connection, before)
        self._holding = [channel for channel in self._holding if channel.deferred]

    def _release(self, connection: Connection, before: dict[int, int]) -> None:
        for channel in self._holding:
            if channel.client.engine is connection and self._is_there(channel):
                if self.is_on:
                    raise Violation(
                        "alarm", f"channel {channel.number} went on while an alarm is on"
                    )
                self.has_released = True
                deferred, channel.deferred = channel.deferred, []
                for publish in deferred:
                    self._publishers.take_effect(channel, publish, before)

    def _is_there(self, channel: ChannelModel) -> bool:
        is_known = self._publishers.channels.get(channel.number - 1) is channel
        return is_known and channel.client.engine.state == RUNNING

    def check_rest(self) -> None:
        """Check a node at rest: it defers publishes only in an alarm, and its clients know that."""
        self.begin()
        for channel in self._publishers.channels.values():
            is_blocked = any(other.client is channel.client for other in self._holding)
            if is_blocked and not self.is_on:
                raise Violation("alarm", f"channel {channel.number} is blocked, and no alarm is on")
            if channel.client.is_told_blocked != is_blocked:
                raise Violation(
                    "alarm", f"the client of channel {channel.number} does not know its state"
                )
