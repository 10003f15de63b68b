"""The exchange types, and a factory for exchanges of each type."""

from typing import Final

from warrenmq.routing.consistent_hash import CONSISTENT_HASH, ConsistentHashExchange
from warrenmq.routing.delayed import DELAYED, DelayedExchange, delayed_type
from warrenmq.routing.direct import DIRECT, DirectExchange
from warrenmq.routing.exchange import Exchange
from warrenmq.routing.fanout import FANOUT, FanoutExchange
from warrenmq.routing.headers import HEADERS, HeadersExchange
from warrenmq.routing.random_exchange import RANDOM, RandomExchange
from warrenmq.routing.topic import TOPIC, TopicExchange
from warrenmq.wire.errors import COMMAND_INVALID, ConnectionException

EXCHANGE_TYPES: Final = (DIRECT, FANOUT, HEADERS, TOPIC, CONSISTENT_HASH, DELAYED, RANDOM)


def check_exchange_type(type: bytes) -> None:
    """Raise ConnectionException 503 if there is no such type."""
    if type not in EXCHANGE_TYPES:
        shown = type.decode("utf-8", "replace")
        raise ConnectionException(COMMAND_INVALID, f"unknown exchange type '{shown}'", 40, 10)


def make_exchange(
    name: bytes, type: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
) -> Exchange:
    """Make an exchange without bindings.

    Raises ConnectionException 503 for an unknown type, also one in `x-delayed-type`, and
    ChannelException 406 for arguments that the type does not take.
    """
    if type == DELAYED:
        inner_type = delayed_type(arguments)
        return DelayedExchange(
            make_exchange(name, inner_type, durable, auto_delete, internal, arguments)
        )
    if type == DIRECT:
        return DirectExchange(name, durable, auto_delete, internal, arguments)
    if type == FANOUT:
        return FanoutExchange(name, durable, auto_delete, internal, arguments)
    if type == TOPIC:
        return TopicExchange(name, durable, auto_delete, internal, arguments)
    if type == CONSISTENT_HASH:
        return ConsistentHashExchange(name, durable, auto_delete, internal, arguments)
    if type == RANDOM:
        return RandomExchange(name, durable, auto_delete, internal, arguments)
    check_exchange_type(type)
    return HeadersExchange(name, durable, auto_delete, internal, arguments)
