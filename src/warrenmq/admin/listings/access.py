"""The listings of users, vhosts, permissions and limits.

Limits are a JSON text, as in RabbitMQ; users and vhosts without limits are not listed.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warrenmq.admin.definitions.export import user_limits
from warrenmq.admin.listings.columns import Columns, ListingOf, vhost_of, vhosts_of
from warrenmq.admin.listings.parameters import compact_json
from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import PutPermission, PutTopicPermission, PutUser
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.names import name_text

# -- users and vhosts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedVhost:
    """A vhost of the node."""

    broker: Broker
    vhost: Vhost

    def cluster_state(self) -> dict[str, str]:
        """The state of the vhost on each node: it is there, so it runs."""
        return {self.broker.settings.node_name: "running"}


def _find_users(broker: Broker, _request: List) -> Iterator[PutUser]:
    return iter(list(broker.access.users.values()))


def _find_vhosts(broker: Broker, request: List) -> Iterator[ListedVhost]:
    user = request.user.encode()
    vhosts = [
        vhost
        for vhost in broker.vhosts.values()
        if not user or broker.access.rights(user, vhost.name) is not None
    ]
    return (ListedVhost(broker, vhost) for vhost in vhosts)


USERS: ListingOf[PutUser] = ListingOf(
    {
        "user": lambda user: name_text(user.name),
        "tags": lambda user: list(user.tags),
        "password_hash": lambda user: base64.b64encode(user.password_hash).decode(),
        "hashing_algorithm": lambda user: user.hashing,
        "limits": user_limits,
    },
    _find_users,
)
VHOSTS: ListingOf[ListedVhost] = ListingOf(
    {
        "name": lambda each: name_text(each.vhost.name),
        "tracing": lambda each: each.vhost.definition.is_tracing,
        "description": lambda each: each.vhost.definition.description,
        "tags": lambda each: list(each.vhost.definition.tags),
        "default_queue_type": lambda each: each.vhost.definition.default_queue_type or "undefined",
        "cluster_state": ListedVhost.cluster_state,
        # For sessions that keep a listing; another number says that a queue has come or gone.
        "topology_version": lambda each: each.vhost.router.version,
    },
    _find_vhosts,
)

# -- permissions -----------------------------------------------------------------------------------


def _find_permissions(broker: Broker, request: List) -> Iterator[PutPermission]:
    vhost = vhost_of(broker, request).name
    return iter([each for each in broker.access.permissions() if each.vhost == vhost])


def _find_user_permissions(broker: Broker, request: List) -> Iterator[PutPermission]:
    user = request.user.encode()
    return iter([each for each in broker.access.permissions() if each.user == user])


def _find_topic_permissions(broker: Broker, request: List) -> Iterator[PutTopicPermission]:
    vhost = vhost_of(broker, request).name
    return iter([each for each in broker.access.topic_permissions() if each.vhost == vhost])


def _find_user_topic_permissions(broker: Broker, request: List) -> Iterator[PutTopicPermission]:
    user = request.user.encode()
    return iter([each for each in broker.access.topic_permissions() if each.user == user])


_PERMISSION: Columns[PutPermission] = {
    "user": lambda each: name_text(each.user),
    "vhost": lambda each: name_text(each.vhost),
    "configure": lambda each: each.configure,
    "write": lambda each: each.write,
    "read": lambda each: each.read,
}
_TOPIC_PERMISSION: Columns[PutTopicPermission] = {
    "user": lambda each: name_text(each.user),
    "vhost": lambda each: name_text(each.vhost),
    "exchange": lambda each: name_text(each.exchange),
    "write": lambda each: each.write,
    "read": lambda each: each.read,
}
PERMISSIONS = ListingOf(_PERMISSION, _find_permissions)
USER_PERMISSIONS = ListingOf(_PERMISSION, _find_user_permissions)
TOPIC_PERMISSIONS = ListingOf(_TOPIC_PERMISSION, _find_topic_permissions)
USER_TOPIC_PERMISSIONS = ListingOf(_TOPIC_PERMISSION, _find_user_topic_permissions)

# -- limits ----------------------------------------------------------------------------------------

_VHOST_LIMITS = ("vhost-limits", "limits")


@dataclass(frozen=True, slots=True)
class ListedLimits:
    """The limits of a user or a vhost, by RabbitMQ's names."""

    name: bytes
    limits: dict[str, Any]


def _find_user_limits(broker: Broker, request: List) -> Iterator[ListedLimits]:
    """The limits of the user that the request names, or of all users when it names none."""
    users = [
        user for user in broker.access.users.values() if request.user in ("", name_text(user.name))
    ]
    found = [ListedLimits(user.name, user_limits(user)) for user in users]
    return iter([each for each in found if each.limits])


def _find_vhost_limits(broker: Broker, request: List) -> Iterator[ListedLimits]:
    """The limits of the vhost that the request names, or of all vhosts when it names none."""
    names = [vhost.name for vhost in vhosts_of(broker, request)]
    values = [(name, broker.parameters.get((name, *_VHOST_LIMITS), "{}")) for name in names]
    found = [ListedLimits(name, json.loads(value)) for name, value in values]
    return iter([each for each in found if each.limits])


def _limits(listed: ListedLimits) -> str:
    return compact_json(listed.limits)


USER_LIMITS: ListingOf[ListedLimits] = ListingOf(
    {"user": lambda each: name_text(each.name), "limits": _limits}, _find_user_limits
)
VHOST_LIMITS: ListingOf[ListedLimits] = ListingOf(
    {"vhost": lambda each: name_text(each.name), "limits": _limits}, _find_vhost_limits
)
