"""All listings, and the check of a request for one.

The rows of a listing come one at a time, so that a session can build them in slices. The listed
objects are those that exist when the request is checked; a row shows the figures of the moment at
which it is made, and an object that ends in between may be missing.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from warrenmq.admin.listings import (
    access,
    connections,
    down_queues,
    exchanges_and_bindings,
    logins,
    parameters,
    queues,
)
from warrenmq.admin.listings.columns import ListingOf, UnknownVhost
from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker

__all__ = ["LISTINGS", "SPREAD", "UnknownColumns", "UnknownVhost", "down_queue_rows", "listing"]

# By the names that requests give; `warrenctl list_NAME` shows one.
LISTINGS: Final[dict[str, ListingOf[Any]]] = {
    "auth_attempts": logins.AUTH_ATTEMPTS,
    "auth_attempts_by_source": logins.AUTH_ATTEMPTS_BY_SOURCE,
    "bindings": exchanges_and_bindings.BINDINGS,
    "channels": connections.CHANNELS,
    "connections": connections.CONNECTIONS,
    "consumers": connections.CONSUMERS,
    "exchanges": exchanges_and_bindings.EXCHANGES,
    "global_parameters": parameters.GLOBAL_PARAMETERS,
    "operator_policies": parameters.OPERATOR_POLICIES,
    "parameters": parameters.PARAMETERS,
    "permissions": access.PERMISSIONS,
    "policies": parameters.POLICIES,
    "queues": queues.QUEUES,
    "topic_permissions": access.TOPIC_PERMISSIONS,
    "user_limits": access.USER_LIMITS,
    "user_permissions": access.USER_PERMISSIONS,
    "user_topic_permissions": access.USER_TOPIC_PERMISSIONS,
    "users": access.USERS,
    "vhost_limits": access.VHOST_LIMITS,
    "vhosts": access.VHOSTS,
}


# Listings of objects of which each lives on one node of a cluster.
SPREAD: Final = frozenset({"channels", "connections", "consumers", "queues"})


class UnknownColumns(Exception):
    """The request asks for columns that its listing does not have; `names` has all of them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"Info key(s) {','.join(names)} are not supported")
        self.names = names


def listing(broker: Broker, request: List) -> Iterator[list[Any]]:
    """The rows of the listing that `request` asks for, with its columns in its order.

    Raises UnknownColumns or UnknownVhost at once, before a row is made.
    """
    wanted = LISTINGS[request.what]
    known = wanted.column_names
    unknown = [name for name in request.columns if name not in known]
    if unknown:
        raise UnknownColumns(unknown)
    return wanted.rows(broker, request)


def down_queue_rows(
    broker: Broker,
    request: List,
    lost: Collection[bytes] = (),
    listed: Collection[bytes] = (),
) -> Iterator[list[Any]]:
    """The rows of a checked request for queues, of those whose node is down.

    `lost`: queues that no node has had when it was asked; they count as down. `listed`: queues that
    have a row already.
    """
    return down_queues.down_queues(lost, listed).rows(broker, request)
