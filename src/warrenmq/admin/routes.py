"""Finds the way that a message would take, for those who look for the reason that one got lost."""

from warrenmq.admin.protocol.routes import RouteTried, TryRoute
from warrenmq.broker.content.properties import inspect_properties
from warrenmq.broker.definitions.rights import EXCHANGE, Rights
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, BAD_REQUEST, NOT_FOUND
from warrenmq.wire.errors import AmqpError


def try_route(vhost: Vhost, rights: Rights, request: TryRoute) -> RouteTried:
    """The queues of a message. Raises GroupError if the exchange or the properties are refused."""
    refusal = rights.read_refusal(EXCHANGE, request.exchange)
    if refusal:
        raise GroupError(ACCESS_REFUSED, refusal)
    exchange = vhost.router.exchanges.get(request.exchange)
    if exchange is None:
        raise GroupError(NOT_FOUND, f"no {vhost.exchange_text(request.exchange)}")
    try:
        properties = inspect_properties(request.properties)
        keys = [request.routing_key, *properties.extra_routing_keys]
        queues = vhost.route(exchange, keys, properties.headers, properties.raw)
    except AmqpError as error:
        raise GroupError(BAD_REQUEST, error.text or "the properties cannot be read") from None
    return RouteTried([queue.name for queue in queues])
