"""The listings of exchanges and of bindings."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from warrenmq.admin.listings.columns import ListingOf, chosen, table_value, vhost_of
from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.routing.exchange import Binding, Exchange
from warrenmq.vocabulary.names import name_text


@dataclass(frozen=True, slots=True)
class ListedExchange:
    """An exchange of a vhost."""

    vhost: Vhost
    exchange: Exchange

    def policy(self) -> str | None:
        """The name of the policy that applies."""
        policies = self.vhost.policies.of_exchange(self.exchange)
        return None if policies is None else policies.policy_name()


def _find_exchanges(broker: Broker, request: List) -> Iterator[ListedExchange]:
    vhost = vhost_of(broker, request)
    exchanges = chosen(vhost.router.exchanges, request.names)
    return (ListedExchange(vhost, exchange) for exchange in exchanges)


def _find_bindings(broker: Broker, request: List) -> Iterator[Binding]:
    router = vhost_of(broker, request).router
    exchanges = chosen(router.exchanges, request.names)
    found = (binding for exchange in exchanges for binding in router.bindings_of_source(exchange))
    if request.names is None:
        return found
    # The bindings between two of the exchanges have come with their sources.
    sources = set(exchanges)
    ends = (*chosen(router.queues, request.names), *exchanges)
    incoming = (binding for end in ends for binding in router.bindings_of_destination(end))
    return chain(found, (binding for binding in incoming if binding.source not in sources))


def _sorted_arguments(binding: Binding) -> dict[str, Any]:
    arguments = table_value(binding.arguments)
    return {name: arguments[name] for name in sorted(arguments)}


EXCHANGES = ListingOf(
    {
        "name": lambda each: name_text(each.exchange.name),
        "type": lambda each: name_text(each.exchange.type),
        "durable": lambda each: each.exchange.durable,
        "auto_delete": lambda each: each.exchange.auto_delete,
        "internal": lambda each: each.exchange.internal,
        "arguments": lambda each: table_value(each.exchange.arguments),
        "policy": ListedExchange.policy,
        "vhost": lambda each: name_text(each.vhost.name),
    },
    _find_exchanges,
)
BINDINGS = ListingOf(
    {
        "source_name": lambda each: name_text(each.source.name),
        "source_kind": lambda _each: "exchange",
        "destination_name": lambda each: name_text(each.destination.name),
        "destination_kind": lambda each: "queue" if each.destination.is_queue else "exchange",
        "routing_key": lambda each: name_text(each.key),
        "arguments": _sorted_arguments,
    },
    _find_bindings,
)
