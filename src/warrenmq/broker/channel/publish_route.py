"""The route of the last publish of a channel, reused while the next publish has the same route.

Clients publish to the same exchange with the same routing key over and over. While the raw bytes of
the publish method stay the same and no binding changes, the route stays the same. The rights of the
user are checked when a route is found; a change of rights raises the router's version, as a change
of bindings does.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.client import Client
from warrenmq.broker.channel.direct_reply import REPLY_TO
from warrenmq.broker.content.properties import PublishProperties
from warrenmq.broker.definitions.rights import EXCHANGE, TopicRights
from warrenmq.broker.transaction import routed_names
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.routing.exchange import Exchange
from warrenmq.routing.topic import TOPIC
from warrenmq.wire.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.methods import BasicPublish, decode_method


class PublishRoute:
    """The route of the last publish of `client` to an exchange of `vhost`."""

    def __init__(self, vhost: VhostQueues, client: Client) -> None:
        # Exchange and routing key as two short strings: the `address` of each message on the route.
        self.address: bytes = b""
        self.routing_key: bytes = b""
        self.mandatory: bool = False
        self.queues: list[MessageTaker] = []
        # True if at least one of `queues` lives on another node, or has copies on other nodes.
        self.has_remote: bool = False
        # True if at least one of `queues` is durable: then a persistent message waits for the disk.
        self.is_durable: bool = False
        # True for a direct reply: the routing key names a consumer of `amq.rabbitmq.reply-to`.
        self.is_reply: bool = False
        # Steps (`publish_turns.py`) that it took to find `queues`, until a publish has counted
        # them.
        self.match_steps: i64 = 0
        # The delayed exchanges at which the message has to wait.
        self.waits: list[Exchange] = []
        # True if the route does not depend on the message beside its key (CC and BCC apart).
        self.is_fixed: bool = False
        # True if the route is fixed, no reply and not traced: each message without CC and BCC goes
        # to `queues`, and that is all.
        self.is_plain: bool = False
        # The exchange of the last publish that could be routed.
        self.exchange: Exchange = vhost.router.default_exchange
        self._vhost: VhostQueues = vhost
        self._client: Client = client
        # The client may publish to `exchange` while the router keeps this version.
        self._exchange_version: i64 = -1
        # The client's rights at this exchange, None if it may use every key.
        self._topic: TopicRights | None = None
        self._raw: bytes = b""
        self._version: i64 = -1
        self._names: list[bytes] | None = None

    def is_current(self, raw: bytes) -> bool:
        """True while this is the route of the publish method `raw`."""
        return raw == self._raw and self._version == self._vhost.router.version

    def renew(self) -> None:
        """Find the route anew if exchanges or queues have changed since the publish method came.

        The message may come much later than the method. Raises as `resolve`.
        """
        if self._version != self._vhost.router.version:
            self.resolve(self._raw)

    def resolve(self, raw: bytes) -> None:
        """Find the route of the publish method `raw`.

        Raises ChannelException 403 or 404, or ConnectionException 540. After an error no route is
        current.
        """
        method = decode_method(raw, 0, len(raw))
        assert isinstance(method, BasicPublish)
        # Forget the last publish first, so that `is_current` is false after a refusal.
        self._raw = b""
        if method.immediate:
            raise ConnectionException(NOT_IMPLEMENTED, "immediate=true", 60, 40)
        vhost = self._vhost
        router = vhost.router
        if router.version != self._exchange_version or method.exchange != self.exchange.name:
            self._find_exchange(method.exchange)
        exchange = self.exchange
        topic = self._topic
        if topic is not None and not topic.write.covers(method.routing_key):
            text = self._client.rights.topic_refusal(method.exchange, method.routing_key)
            raise ChannelException(ACCESS_REFUSED, text, 60, 40)
        self.routing_key = method.routing_key
        self.mandatory = method.mandatory
        self.address = raw[6:-1]
        self.is_reply = not method.exchange and method.routing_key.startswith(REPLY_TO + b".")
        self.is_fixed = not router.depends_on_message(exchange)
        if self.is_fixed:
            self.waits = []
            steps = vhost.route_steps
            self._set_queues(vhost.route(exchange, [method.routing_key], b""))
            self.match_steps = vhost.route_steps - steps - len(self.queues)
        # A traced message takes the way of those that need a look at their properties.
        is_traced = vhost.definition.is_tracing
        self.is_plain = self.is_fixed and not self.is_reply and not is_traced
        self._version = router.version
        self._raw = raw

    def _find_exchange(self, name: bytes) -> None:
        """Find the exchange and check that the client may publish to it; raises as `resolve`."""
        rights = self._client.rights
        rights.expect_write(EXCHANGE, name, 60, 40)
        vhost = self._vhost
        exchange = vhost.router.exchanges.get(name)
        if exchange is None:
            raise ChannelException(NOT_FOUND, f"no {vhost.exchange_text(name)}", 60, 40)
        if exchange.internal:
            text = vhost.exchange_text(name)
            raise ChannelException(ACCESS_REFUSED, f"cannot publish to internal {text}", 60, 40)
        self.exchange = exchange
        self._topic = rights.topics.get(name) if exchange.type == TOPIC else None
        self._exchange_version = vhost.router.version

    def route_by_headers(self, properties: PublishProperties) -> None:
        """Find the queues of a message whose properties affect the route."""
        self.waits = []
        keys = [self.routing_key]
        keys.extend(properties.extra_routing_keys)
        vhost = self._vhost
        steps = vhost.route_steps
        self._set_queues(
            vhost.route(self.exchange, keys, properties.headers, properties.raw, self.waits)
        )
        self.match_steps = vhost.route_steps - steps - len(self.queues)
        # The route is for this message only: the next publish is resolved again.
        self._version = -1

    def names(self, properties: PublishProperties) -> list[bytes]:
        """Names of the queues, for a transaction; publishes with the same route share this list."""
        if self._names is None:
            is_default = self.exchange is self._vhost.router.default_exchange
            self._names = routed_names(
                is_default, [self.routing_key, *properties.extra_routing_keys], self.queues
            )
        return self._names

    def forget(self) -> None:
        """Forget the last publish, so that the next one is resolved again."""
        self._raw = b""

    def release(self) -> None:
        """Drop the references to queues, because the channel is closed."""
        self.queues = []

    def _set_queues(self, queues: list[MessageTaker]) -> None:
        self.queues = queues
        self._names = None
        self.is_durable = False
        self.has_remote = False
        for queue in queues:
            if isinstance(queue, RemoteQueue) or (
                isinstance(queue, Queue) and queue.confirm_source is not None
            ):
                self.has_remote = True
            if queue.durable:
                self.is_durable = True
        if len(self.waits) > 0:
            self.is_durable = True
