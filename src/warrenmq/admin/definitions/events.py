"""The internal events that changes of users, permissions, vhosts and parameters are.

A change may be several events: their names are RabbitMQ's, and so are the fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.limits import VHOST_LIMITS
from warrenmq.vocabulary.names import name_text

Fields = dict[str, Any]

# -- fields ----------------------------------------------------------------------------------------


def _user(user: metadata.PutUser, name: str) -> Fields:
    shown = {"name": name_text(user.name)}
    if name == "user.tags.set":
        return {"tags": user.tags, **shown}
    if not name.startswith("user.limits"):
        return shown
    limits = {"max-connections": user.max_connections, "max-channels": user.max_channels}
    return {
        **{key: value for key, value in limits.items() if value != metadata.NO_LIMIT},
        "username": name_text(user.name),
        "name": "limits",
    }


def _vhost(vhost: metadata.PutVhost, name: str) -> Fields:
    shown = {"tags": vhost.tags, "name": name_text(vhost.name)}
    if name == "vhost.tags.set":
        return shown
    return {
        "description": vhost.description,
        "tracing": vhost.is_tracing,
        "default_queue_type": vhost.default_queue_type or "undefined",
        **shown,
    }


def _permission(permission: metadata.PutPermission, _name: str) -> Fields:
    return {
        "read": permission.read,
        "write": permission.write,
        "configure": permission.configure,
        "user": name_text(permission.user),
    }


def _topic_permission(permission: metadata.PutTopicPermission, _name: str) -> Fields:
    return {
        "read": permission.read,
        "write": permission.write,
        "exchange": name_text(permission.exchange),
        "user": name_text(permission.user),
    }


def _no_topic_permission(permission: metadata.DeleteTopicPermission, _name: str) -> Fields:
    return {"exchange": name_text(permission.exchange), "user": name_text(permission.user)}


def _parameter(parameter: metadata.PutParameter, name: str) -> Fields:
    value = json.loads(parameter.value)
    if name in ("policy.set", "vhost.limits.set"):
        return {**value, "name": parameter.name}
    return {"value": value, "name": parameter.name, "component": parameter.component or "global"}


def _no_parameter(parameter: metadata.DeleteParameter, name: str) -> Fields:
    if name == "parameter.cleared":
        return {"name": parameter.name, "component": parameter.component or "global"}
    return {"name": parameter.name}


_FIELDS: Final[Mapping[type, Callable[[Any, str], Fields]]] = {
    metadata.PutUser: _user,
    metadata.DeleteUser: lambda user, _name: {"name": name_text(user.name)},
    metadata.PutVhost: _vhost,
    metadata.DeleteVhost: lambda vhost, _name: {"name": name_text(vhost.name)},
    metadata.PutPermission: _permission,
    metadata.DeletePermission: lambda permission, _name: {"user": name_text(permission.user)},
    metadata.PutTopicPermission: _topic_permission,
    metadata.DeleteTopicPermission: _no_topic_permission,
    metadata.PutParameter: _parameter,
    metadata.DeleteParameter: _no_parameter,
}


def definition_fields(name: str, change: object) -> Fields:
    """The fields of the event `name` about `change`, but for the vhost and who asked for it."""
    return _FIELDS[type(change)](change, name)


# -- the events of a change ------------------------------------------------------------------------


def announce_change(broker: Broker, change: metadata.Change, user: bytes) -> None:
    """Tell the listener of a change that is about to be put in force; `user` asks for it.

    A vhost that is created or deleted is told of by the administration, at the end.
    """
    if broker.events is None:
        return
    vhost = getattr(change, "vhost", b"")
    for name in _names(broker, change):
        broker.events(name, change, vhost, user)


def _names(broker: Broker, change: metadata.Change) -> list[str]:
    match change:
        case metadata.PutUser():
            return _user_events(broker.access.users.get(change.name), change)
        case metadata.PutVhost():
            before = broker.vhosts[change.name].definition
            return ["vhost.tags.set"] if before.tags != change.tags else []
        case metadata.PutParameter():
            return _SET.get(change.component, ["parameter.set"])
        case metadata.DeleteParameter():
            return _CLEARED.get(change.component, ["parameter.cleared"])
    return _EVENT.get(type(change), [])


_EVENT: Final[Mapping[type, list[str]]] = {
    metadata.DeleteUser: ["user.deleted"],
    metadata.PutPermission: ["permission.created"],
    metadata.DeletePermission: ["permission.deleted"],
    metadata.PutTopicPermission: ["topic.permission.created"],
    metadata.DeleteTopicPermission: ["topic.permission.deleted"],
}
_SET: Final[Mapping[str, list[str]]] = {
    "policy": ["policy.set"],
    "operator_policy": ["parameter.set", "policy.set"],
    VHOST_LIMITS: ["parameter.set", "vhost.limits.set"],
}
_CLEARED: Final[Mapping[str, list[str]]] = {
    "policy": ["policy.cleared"],
    "operator_policy": ["parameter.cleared", "operator.policy.cleared"],
    VHOST_LIMITS: ["parameter.cleared", "vhost.limits.cleared"],
}


def _user_events(before: metadata.PutUser | None, user: metadata.PutUser) -> list[str]:
    if before is None:
        return ["user.created", "user.tags.set"] if user.tags else ["user.created"]
    names = []
    if user.password_hash != before.password_hash:
        names.append("user.password.changed" if user.password_hash else "user.password.cleared")
    if user.tags != before.tags:
        names.append("user.tags.set")
    limits = (user.max_connections, user.max_channels)
    if limits != (before.max_connections, before.max_channels):
        is_cleared = limits == (metadata.NO_LIMIT, metadata.NO_LIMIT)
        names.append("user.limits.cleared" if is_cleared else "user.limits.set")
    return names
