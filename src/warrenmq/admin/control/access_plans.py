"""Plans of operations on users, permissions, vhosts, parameters, pauses: checks and changes.

Each function returns the changes of one operation, for `Administration.run`, or raises Refusal.
Texts that RabbitMQ has are RabbitMQ's.
"""

from __future__ import annotations

import json
from typing import Any

from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.dispatch import Dispatch
from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.schedules import PIPELINE_RUN, PIPELINE_SCHEDULE
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.limits import check_limits
from warrenmq.broker.definitions.passwords import hash_password
from warrenmq.broker.definitions.rights import Right
from warrenmq.broker.policies.mirroring import normal_definition
from warrenmq.broker.policies.policy import POLICY, check_policy
from warrenmq.broker.vhost.pauses import QUEUE_PAUSE, pause_key, pause_value
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary import error_codes

VHOST_LIMITS = ("vhost-limits", "limits")
# Components whose parameters have operations of their own.
OWN_COMPONENTS = (
    "policy", "operator_policy", "vhost-limits", "user-limits", QUEUE_PAUSE, PIPELINE_SCHEDULE,
    PIPELINE_RUN, "",
)  # fmt: skip


class AccessPlans:
    """The plans of one node's operations; `by_request` has them by type of request."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # The algorithm of new passwords.
        self._hashing = broker.settings.password_hashing
        self.by_request: Dispatch[list[metadata.Change]] = Dispatch()
        self._add_access()
        self._add_vhosts_and_parameters()

    def _add_access(self) -> None:
        plans = self.by_request
        plans.add(control.AddUser, self.add_user)
        plans.add(control.DeleteUser, self.delete_user)
        plans.add(control.ChangePassword, self.change_password)
        plans.add(control.SetUserTags, self.set_user_tags)
        plans.add(control.SetUserLimits, self.set_user_limits)
        plans.add(control.SetPermissions, self.set_permissions)
        plans.add(control.ClearPermissions, self.clear_permissions)
        plans.add(control.SetTopicPermissions, self.set_topic_permissions)
        plans.add(control.ClearTopicPermissions, self.clear_topic_permissions)

    def _add_vhosts_and_parameters(self) -> None:
        plans = self.by_request
        plans.add(control.AddVhost, self.add_vhost)
        plans.add(control.DeleteVhost, self.delete_vhost)
        plans.add(control.SetVhostMetadata, self.set_vhost_metadata)
        plans.add(control.SetVhostTags, self.set_vhost_tags)
        plans.add(control.SetTracing, self.set_tracing)
        plans.add(control.SetVhostLimits, self.set_vhost_limits)
        plans.add(control.SetPolicy, self.set_policy)
        plans.add(control.ClearPolicy, self.clear_policy)
        plans.add(control.SetParameter, self.set_parameter)
        plans.add(control.ClearParameter, self.clear_parameter)
        plans.add(control.PauseQueue, self.pause_queue)
        plans.add(control.ResumeQueue, self.resume_queue)
        plans.add(control.SetGlobalParameter, self.set_global_parameter)
        plans.add(control.ClearGlobalParameter, self.clear_global_parameter)

    # -- users -------------------------------------------------------------------------------------

    def add_user(self, request: control.AddUser) -> list[metadata.Change]:
        """A new user without tags."""
        name = request.name.encode()
        if not name:
            raise Refusal(error_codes.BAD_REQUEST, "user name cannot be empty")
        if name in self._broker.access.users:
            raise Refusal(error_codes.EXISTS, f'User "{request.name}" already exists')
        return [metadata.PutUser(name, self._hash(request.password), self._hashing, [])]

    def delete_user(self, request: control.DeleteUser) -> list[metadata.Change]:
        """Delete a user."""
        self._user(request.name)
        return [metadata.DeleteUser(request.name.encode())]

    def change_password(self, request: control.ChangePassword) -> list[metadata.Change]:
        """Set or clear a user's password."""
        user = self._user(request.name)
        password = request.password
        password_hash = b"" if password is None else self._hash(password)
        return [_changed_user(user, password_hash, self._hashing)]

    def set_user_tags(self, request: control.SetUserTags) -> list[metadata.Change]:
        """Replace a user's tags."""
        user = self._user(request.name)
        changed = _changed_user(user, user.password_hash, user.hashing)
        changed.tags = list(dict.fromkeys(request.tags))
        return [changed]

    def set_user_limits(self, request: control.SetUserLimits) -> list[metadata.Change]:
        """Set or remove limits of a user."""
        user = self._user(request.name)
        changed = _changed_user(user, user.password_hash, user.hashing)
        if request.max_connections is not None:
            changed.max_connections = request.max_connections
        if request.max_channels is not None:
            changed.max_channels = request.max_channels
        return [changed]

    # -- permissions -------------------------------------------------------------------------------

    def set_permissions(self, request: control.SetPermissions) -> list[metadata.Change]:
        """Set a user's permissions in a vhost."""
        self._vhost(request.vhost)
        self._user(request.user)
        for pattern in (request.configure, request.write, request.read):
            _check_pattern(pattern)
        return [
            metadata.PutPermission(
                request.vhost.encode(),
                request.user.encode(),
                request.configure,
                request.write,
                request.read,
            )
        ]

    def clear_permissions(self, request: control.ClearPermissions) -> list[metadata.Change]:
        """Take a user's access to a vhost away."""
        self._vhost(request.vhost)
        self._user(request.user)
        return [metadata.DeletePermission(request.vhost.encode(), request.user.encode())]

    def set_topic_permissions(self, request: control.SetTopicPermissions) -> list[metadata.Change]:
        """Set a user's permissions at a topic exchange, which need not exist."""
        self._vhost(request.vhost)
        self._user(request.user)
        for pattern in (request.write, request.read):
            _check_pattern(pattern)
        return [
            metadata.PutTopicPermission(
                request.vhost.encode(),
                request.user.encode(),
                request.exchange.encode(),
                request.write,
                request.read,
            )
        ]

    def clear_topic_permissions(
        self, request: control.ClearTopicPermissions
    ) -> list[metadata.Change]:
        """Clear a user's permissions at one topic exchange, or at all."""
        self._vhost(request.vhost)
        self._user(request.user)
        vhost, user = request.vhost.encode(), request.user.encode()
        if request.exchange is not None:
            return [metadata.DeleteTopicPermission(vhost, user, request.exchange.encode())]
        return [
            metadata.DeleteTopicPermission(vhost, user, exchange)
            for exchange in self._broker.access.topic_exchanges(user, vhost)
        ]

    # -- vhosts ------------------------------------------------------------------------------------

    def add_vhost(self, request: control.AddVhost) -> list[metadata.Change]:
        """Create a vhost, which no user may enter yet."""
        name = request.name.encode()
        if name in self._broker.vhosts:
            return []
        queue_type = _queue_type(request.default_queue_type)
        vhost_id = self._broker.next_vhost_id()
        # Definitions that a deleted vhost of this name left behind must not come back.
        return [
            metadata.DeleteVhost(name),
            metadata.PutVhost(name, vhost_id, request.description, list(request.tags), queue_type),
        ]

    def delete_vhost(self, request: control.DeleteVhost) -> list[metadata.Change]:
        """Delete a vhost."""
        self._vhost(request.name)
        return [metadata.DeleteVhost(request.name.encode())]

    def set_vhost_metadata(self, request: control.SetVhostMetadata) -> list[metadata.Change]:
        """Replace a vhost's description and tags, and set its default type of queues."""
        changed = _copy(self._vhost(request.name).definition)
        changed.description = request.description
        changed.tags = list(dict.fromkeys(request.tags))
        if request.default_queue_type:
            changed.default_queue_type = _queue_type(request.default_queue_type)
        return [changed]

    def set_vhost_tags(self, request: control.SetVhostTags) -> list[metadata.Change]:
        """Replace a vhost's tags."""
        changed = _copy(self._vhost(request.name).definition)
        changed.tags = list(dict.fromkeys(request.tags))
        return [changed]

    def set_tracing(self, request: control.SetTracing) -> list[metadata.Change]:
        """Switch tracing of a vhost on or off."""
        changed = _copy(self._vhost(request.vhost).definition)
        changed.is_tracing = request.is_on
        return [changed]

    def set_vhost_limits(self, request: control.SetVhostLimits) -> list[metadata.Change]:
        """Replace a vhost's limits."""
        vhost = self._vhost(request.vhost).name
        value = _json(request.definition)
        if value == {}:
            return [metadata.DeleteParameter(vhost, *VHOST_LIMITS)]
        _check(lambda: check_limits(request.definition))
        return [metadata.PutParameter(vhost, *VHOST_LIMITS, json.dumps(value))]

    def reset(self, node: ControlHost) -> list[metadata.Change]:
        """Delete everything and begin anew; only while the broker does not run."""
        if node.is_running:
            raise Refusal(
                error_codes.PRECONDITION, "this command requires the broker to be stopped first"
            )
        return self.empty() + node.first_definitions()

    def empty(self) -> list[metadata.Change]:
        """Delete everything."""
        changes: list[metadata.Change] = []
        changes += [metadata.DeleteVhost(name) for name in self._broker.vhosts]
        changes += [metadata.DeleteUser(name) for name in self._broker.access.users]
        changes += [metadata.DeleteParameter(*key) for key in self._broker.parameters if not key[0]]
        return changes

    # -- policies and parameters -------------------------------------------------------------------

    def set_policy(self, request: control.SetPolicy) -> list[metadata.Change]:
        """Set a policy or an operator policy."""
        vhost = self._vhost(request.vhost).name
        definition = _json(request.definition)
        if isinstance(definition, dict):
            definition = normal_definition(definition)
        value = json.dumps(
            {
                "pattern": request.pattern,
                "definition": definition,
                "priority": request.priority,
                "apply-to": request.apply_to,
            }
        )
        _check(lambda: check_policy(request.kind, request.name, value))
        return [metadata.PutParameter(vhost, request.kind, request.name, value)]

    def clear_policy(self, request: control.ClearPolicy) -> list[metadata.Change]:
        """Delete a policy or an operator policy."""
        vhost = self._vhost(request.vhost).name
        return self._clear(vhost, request.kind, request.name)

    def set_parameter(self, request: control.SetParameter) -> list[metadata.Change]:
        """Set a parameter that a plug-in of RabbitMQ would use."""
        vhost = self._vhost(request.vhost).name
        _expect_foreign(request.component, "set")
        return [
            metadata.PutParameter(
                vhost, request.component, request.name, json.dumps(_json(request.value))
            )
        ]

    def clear_parameter(self, request: control.ClearParameter) -> list[metadata.Change]:
        """Delete a parameter."""
        vhost = self._vhost(request.vhost).name
        _expect_foreign(request.component, "cleared")
        return self._clear(vhost, request.component, request.name)

    def set_global_parameter(self, request: control.SetGlobalParameter) -> list[metadata.Change]:
        """Set a parameter of the whole broker."""
        return [metadata.PutParameter(b"", "", request.name, json.dumps(_json(request.value)))]

    def clear_global_parameter(
        self, request: control.ClearGlobalParameter
    ) -> list[metadata.Change]:
        """Delete a parameter of the whole broker."""
        return self._clear(b"", "", request.name)

    # -- pauses of queues --------------------------------------------------------------------------

    def pause_queue(self, request: control.PauseQueue) -> list[metadata.Change]:
        """Pause a queue of any node."""
        vhost = self._vhost(request.vhost)
        key = self._pause_key(vhost, request.queue)
        if key in vhost.pauses:
            return []
        value = pause_value(request.queue)
        return [
            *_ended_pauses(vhost),
            metadata.PutParameter(vhost.name, QUEUE_PAUSE, key, value),
        ]

    def resume_queue(self, request: control.ResumeQueue) -> list[metadata.Change]:
        """Resume a queue of any node."""
        vhost = self._vhost(request.vhost)
        key = self._pause_key(vhost, request.queue)
        if key not in vhost.pauses:
            return []
        return [*_ended_pauses(vhost), metadata.DeleteParameter(vhost.name, QUEUE_PAUSE, key)]

    def _pause_key(self, vhost: Vhost, queue: bytes) -> str:
        taker = vhost.taker(queue)
        if taker is None:
            raise Refusal(error_codes.NOT_FOUND, f"no {vhost.queue_text(queue)}")
        return pause_key(taker.definition)

    # -- parts -------------------------------------------------------------------------------------

    def _clear(self, vhost: bytes, component: str, name: str) -> list[metadata.Change]:
        if (vhost, component, name) not in self._broker.parameters:
            raise Refusal(error_codes.NOT_FOUND, "Parameter does not exist")
        return [metadata.DeleteParameter(vhost, component, name)]

    def _user(self, name: str) -> metadata.PutUser:
        user = self._broker.access.users.get(name.encode())
        if user is None:
            raise Refusal(error_codes.NO_SUCH_USER, f'User "{name}" does not exist')
        return user

    def _vhost(self, name: str) -> Vhost:
        vhost = self._broker.vhosts.get(name.encode())
        if vhost is None:
            raise Refusal(error_codes.NO_SUCH_VHOST, f'Virtual host "{name}" does not exist')
        return vhost

    def _hash(self, password: str) -> bytes:
        reason = self._broker.settings.credential_rules.refusal(password.encode())
        if reason:
            raise Refusal(error_codes.INVALID, reason)
        return hash_password(password.encode(), self._hashing)


def _ended_pauses(vhost: Vhost) -> list[metadata.Change]:
    """The deletions of the pauses whose queues are deleted."""
    ended: list[metadata.Change] = []
    for key, name in vhost.pauses.items():
        taker = vhost.taker(name)
        if taker is None or pause_key(taker.definition) != key:
            ended.append(metadata.DeleteParameter(vhost.name, QUEUE_PAUSE, key))
    return ended


def _changed_user(user: metadata.PutUser, password_hash: bytes, hashing: str) -> metadata.PutUser:
    """A copy of the user with another password."""
    return metadata.PutUser(
        user.name, password_hash, hashing, user.tags, user.max_connections, user.max_channels
    )


def _copy(vhost: metadata.PutVhost) -> metadata.PutVhost:
    return metadata.PutVhost(
        vhost.name,
        vhost.id,
        vhost.description,
        vhost.tags,
        vhost.default_queue_type,
        vhost.is_tracing,
    )


def _queue_type(name: str) -> str:
    """The default type of queues that RabbitMQ calls `name`; "": classic. Raises Refusal."""
    if name not in ("", "classic", "quorum", "stream", "undefined"):
        raise Refusal(error_codes.INVALID, f"invalid default queue type '{name}'")
    return "" if name == "undefined" else name


def _check_pattern(pattern: str) -> None:
    error = Right(pattern).error
    if error:
        raise Refusal(error_codes.INVALID, f"invalid regular expression {pattern}: {error}")


def _expect_foreign(component: str, done: str) -> None:
    """Raise Refusal for a component whose parameters have operations of their own."""
    if component == POLICY:
        raise Refusal(error_codes.INVALID, f"policies may not be {done} using this method")
    if component in OWN_COMPONENTS:
        raise Refusal(error_codes.INVALID, f"component {component} not found")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal(error_codes.BAD_REQUEST, "JSON decoding error") from None


def _check(check: Any) -> None:
    try:
        check()
    except ValueError as error:
        raise Refusal(error_codes.INVALID, str(error)) from None
