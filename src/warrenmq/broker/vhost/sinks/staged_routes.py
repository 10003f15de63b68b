"""The checks and the routing of staged messages.

A staged message is checked like a message of `basic.publish`. It is routed twice: when it is
staged, to report to the client how many messages no queue would get, and when it is published, by
the bindings of that moment.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.content.properties import PublishProperties, inspect_properties
from warrenmq.broker.definitions.rights import EXCHANGE
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.sinks.stage import Author, StageError
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.routing.exchange import Exchange
from warrenmq.routing.topic import TOPIC
from warrenmq.store.model.message import Message
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, BAD_REQUEST, NOT_FOUND, PRECONDITION
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.frames import FRAME_OVERHEAD

# Routes that are cached, by address.
_ROUTES_MAX: Final = 4096
_DIRECT_REPLY_TO: Final = b"amq.rabbitmq.reply-to"
# Bytes of a header frame's payload besides the properties: class, weight, body size.
_HEADER_BYTES: Final = 12


class StagedRoutes:
    """Checks and routes the staged messages of one vhost."""

    def __init__(self, vhost: VhostQueues) -> None:
        self._vhost: VhostQueues = vhost
        self._known: dict[bytes, list[MessageTaker]] = {}
        # The delayed exchanges at which the message of the last `queues_for` has to wait.
        self.waits: list[Exchange] = []
        self._version: i64 = -1

    def check(self, message: Message, target: bytes, author: Author) -> PublishProperties:
        """Return the inspected properties of `message`; StageError if it may not be published.

        `target` is the queue for the message; if it is empty, the exchange decides.
        """
        settings = self._vhost.node.settings
        if len(message.body) > settings.max_message_size:
            raise StageError(
                PRECONDITION,
                f"a message of {len(message.body)} bytes is above max_message_size ({settings.max_message_size})",
            )
        properties = inspect(message)
        if len(target) == 0:
            self._check_published(message, properties, author)
        return properties

    def queues_for(
        self, target: bytes, address: bytes, properties: PublishProperties
    ) -> list[MessageTaker]:
        """The queues for a message: `target` if that is not empty, else by its exchange.

        `waits` has the exchanges at which it has to wait.
        """
        self.waits = []
        if len(target) > 0:
            queue = self._vhost.taker(target)
            return [] if queue is None else [queue]
        router = self._vhost.router
        if self._version != router.version or len(self._known) >= _ROUTES_MAX:
            self._known = {}
            self._version = router.version
        if len(properties.extra_routing_keys) == 0:
            known = self._known.get(address)
            if known is not None:
                return known
        name_end: i64 = 1 + i64(address[0])
        exchange: Exchange | None = router.exchanges.get(address[1:name_end])
        if exchange is None:
            # The exchange was deleted after the message was staged.
            return []
        keys = [address[name_end + 1 :]]
        if len(properties.extra_routing_keys) > 0 or router.depends_on_message(exchange):
            keys.extend(properties.extra_routing_keys)
            return self._vhost.route(exchange, keys, properties.headers, properties.raw, self.waits)
        queues = self._vhost.route(exchange, keys, b"")
        self._known[address] = queues
        return queues

    def _check_published(
        self, message: Message, properties: PublishProperties, author: Author
    ) -> None:
        frame_max: i64 = self._vhost.node.settings.frame_max
        if frame_max != 0 and len(message.properties) > frame_max - FRAME_OVERHEAD - _HEADER_BYTES:
            # A header frame is never split: no consumer could get the message.
            raise StageError(
                PRECONDITION,
                f"a message has {len(message.properties)} bytes of properties, which do not fit into a frame "
                f"(frame_max is {frame_max})",
            )
        user_id = properties.user_id
        user = author.account
        if user_id is not None and user_id != user.name and not user.is_impersonator:
            raise StageError(
                PRECONDITION,
                f"user_id '{name_text(user_id)}' is not that of the session, '{name_text(user.name)}'",
            )
        if properties.reply_to == _DIRECT_REPLY_TO:
            raise StageError(
                PRECONDITION,
                f"reply_to '{name_text(_DIRECT_REPLY_TO)}' needs a channel that consumes",
            )
        name = message.exchange()
        refusal = author.rights.write_refusal(EXCHANGE, name)
        if refusal:
            raise StageError(ACCESS_REFUSED, refusal)
        exchange = self._vhost.router.exchanges.get(name)
        if exchange is None:
            raise StageError(NOT_FOUND, f"no {self._vhost.exchange_text(name)}")
        if exchange.internal:
            raise StageError(
                PRECONDITION, f"cannot publish to internal {self._vhost.exchange_text(name)}"
            )
        if len(author.rights.topics) > 0 and exchange.type == TOPIC:
            refusal = author.rights.topic_write_refusal(name, message.routing_key())
            if refusal:
                raise StageError(ACCESS_REFUSED, refusal)


def inspect(message: Message) -> PublishProperties:
    """The inspected properties of a message; StageError if they are malformed."""
    try:
        return inspect_properties(message.properties)
    except AmqpError as error:
        raise StageError(
            BAD_REQUEST, error.text or "the properties of a message cannot be read"
        ) from None
