"""Where the publishes of a channel go: the route of the last one, for as long as it is that of the next one, too.

Clients publish the same exchange and routing key over and over: when the raw bytes of a publish method equal those of the
one before and no binding has changed, the route is the one before.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.direct_reply import REPLY_TO
from warrenmq.broker.content.properties import PublishProperties
from warrenmq.broker.transaction import routed_names
from warrenmq.broker.vhost.vhost_queues import VhostQueues
from warrenmq.queues.queue import Queue
from warrenmq.routing.exchange import Exchange
from warrenmq.wire.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    ChannelException,
    ConnectionException,
)
from warrenmq.wire.methods import BasicPublish, decode_method


class PublishRoute:
    """The route of the last publish to an exchange of `vhost`."""

    def __init__(self, vhost: VhostQueues) -> None:
        # Exchange and routing key, encoded as two short strings: the `address` of each message on this route.
        self.address: bytes = b""
        self.routing_key: bytes = b""
        self.mandatory: bool = False
        self.queues: list[Queue] = []
        # At least one of `queues` is durable, so a persistent message waits for the disk.
        self.is_durable: bool = False
        # It goes to the client that consumes `amq.rabbitmq.reply-to` under the name that is the routing key.
        self.is_reply: bool = False
        # The headers of a message have no say.
        self.is_fixed: bool = False
        # It is fixed and no reply: a message goes to `queues` whatever is in it.
        self.is_plain: bool = False
        self._vhost: VhostQueues = vhost
        self._exchange: Exchange = vhost.router.default_exchange
        self._raw: bytes = b""
        self._version: i64 = -1
        self._names: list[bytes] | None = None

    def is_current(self, raw: bytes) -> bool:
        """Is this route the one of the publish method `raw`?"""
        return raw == self._raw and self._version == self._vhost.router.version

    def resolve(self, raw: bytes) -> None:
        """Find the route of the publish method `raw`. Raises ChannelException 403, 404, ConnectionException 540."""
        method = decode_method(raw, 0, len(raw))
        assert isinstance(method, BasicPublish)
        # Forget the last publish first: a refused one must not be taken for it later.
        self._raw = b""
        if method.immediate:
            raise ConnectionException(NOT_IMPLEMENTED, "immediate=true", 60, 40)
        vhost = self._vhost
        router = vhost.router
        exchange = router.exchanges.get(method.exchange)
        if exchange is None:
            raise ChannelException(NOT_FOUND, f"no {vhost.exchange_text(method.exchange)}", 60, 40)
        if exchange.internal:
            text = vhost.exchange_text(method.exchange)
            raise ChannelException(ACCESS_REFUSED, f"cannot publish to internal {text}", 60, 40)
        self._exchange = exchange
        self.routing_key = method.routing_key
        self.mandatory = method.mandatory
        self.address = raw[6:-1]
        self.is_reply = not method.exchange and method.routing_key.startswith(REPLY_TO + b".")
        self.is_fixed = not router.depends_on_headers(exchange)
        if self.is_fixed:
            self._set_queues(vhost.route(exchange, [method.routing_key], b""))
        self.is_plain = self.is_fixed and not self.is_reply
        self._version = router.version
        self._raw = raw

    def route_by_headers(self, properties: PublishProperties) -> None:
        """Find the queues of a message whose properties have a say."""
        keys = [self.routing_key]
        keys.extend(properties.extra_routing_keys)
        self._set_queues(self._vhost.route(self._exchange, keys, properties.headers))
        # These are not the queues of the bare routing key.
        self._version = -1

    def names(self, properties: PublishProperties) -> list[bytes]:
        """Names of the queues, for a transaction; publishes with the same route share the list."""
        if self._names is None:
            is_default = self._exchange is self._vhost.router.default_exchange
            self._names = routed_names(
                is_default, [self.routing_key, *properties.extra_routing_keys], self.queues
            )
        return self._names

    def forget(self) -> None:
        """The next publish is resolved anew."""
        self._raw = b""

    def release(self) -> None:
        """The channel is closed: keep no queue in memory."""
        self.queues = []

    def _set_queues(self, queues: list[Queue]) -> None:
        self.queues = queues
        self._names = None
        self.is_durable = False
        for queue in queues:
            if queue.durable:
                self.is_durable = True
