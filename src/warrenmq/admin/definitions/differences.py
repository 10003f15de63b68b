"""The changes that an import makes of users, vhosts, permissions and parameters, with lines.

The difference is taken against the broker at the moment of the call, so an import takes it again
when its turn among the operations of the administration comes.
"""

import json
from collections.abc import Callable
from typing import Any

from warrenmq.admin.definitions import conversion
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.definitions.document import DefinitionsError, Document, pairs
from warrenmq.admin.definitions.json_values import bytes_of
from warrenmq.admin.definitions.row_faults import in_row
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.limits import VHOST_LIMITS
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteVhost,
    PutParameter,
    PutPermission,
    PutTopicPermission,
    PutUser,
)
from warrenmq.broker.policies.policy import OPERATOR_POLICY, POLICY
from warrenmq.vocabulary.error_codes import INVALID, NO_SUCH_USER, NO_SUCH_VHOST
from warrenmq.vocabulary.names import name_text


class NodeDifference:
    """The difference that the node's part of `document` makes.

    `vhost`: the one vhost that the document is for, or None for the whole node; only parameters
    and policies are of a vhost. `next_vhost_id` gives ids to new vhosts. Raises DefinitionsError
    and Refusal for what is invalid or names unknown users and vhosts.
    """

    def __init__(
        self,
        broker: Broker,
        document: Document,
        vhost: str | None,
        next_vhost_id: Callable[[], int],
    ) -> None:
        self.changes: list[Change] = []
        # A line for people about each change.
        self.lines: list[str] = []
        self._broker = broker
        self._document = document
        self._vhost = vhost
        self._next_vhost_id = next_vhost_id
        self._vhosts = {name for name in broker.vhosts}
        self._users = set(broker.access.users)
        if vhost is None:
            self._add_users()
            self._add_vhosts()
            self._add_permissions()
            self._add_topic_permissions()
            self._add_global_parameters()
        self._add_parameters()

    def vhost_of(self, row: Any) -> str:
        """The name of a row's vhost, which must exist or be created."""
        name: str = row.vhost if self._vhost is None else self._vhost
        if not name:
            raise DefinitionsError(
                f"{type(row).__name__.removesuffix('Row').lower()} "
                f"'{getattr(row, 'name', '')}' names no vhost"
            )
        if bytes_of(name) not in self._vhosts:
            raise Refusal(NO_SUCH_VHOST, f'Virtual host "{name}" does not exist')
        return name

    # -- users and vhosts --------------------------------------------------------------------------

    def _add_users(self) -> None:
        access, rules = self._broker.access, self._broker.settings.credential_rules
        rows = {
            bytes_of(row.name): (number, row) for number, row in enumerate(self._document.users)
        }
        for name, (number, row) in rows.items():
            known = access.users.get(name)
            with in_row("users", number):
                user = conversion.user_of(row, self._document.version, known)
            self._users.add(name)
            if known is not None and _user_parts(user) == _user_parts(known):
                continue
            is_new_password = known is None or user.password_hash != known.password_hash
            if row.password and row.password_hash is None and is_new_password:
                reason = rules.refusal(row.password.encode())
                if reason:
                    raise Refusal(INVALID, f"users[{number}]: user '{row.name}': {reason}")
            self.changes.append(user)
            self._tell(f"user '{row.name}'", _user_parts(user), known and _user_parts(known))

    def _add_vhosts(self) -> None:
        rows = {
            bytes_of(row.name): (number, row) for number, row in enumerate(self._document.vhosts)
        }
        for name, (number, row) in rows.items():
            vhost = self._broker.vhosts.get(name)
            known = None if vhost is None else vhost.definition
            with in_row("vhosts", number):
                definition = conversion.vhost_of(
                    row, 0 if vhost is not None else self._next_vhost_id(), known
                )
            self._vhosts.add(name)
            parts = {
                "description": definition.description,
                "tags": definition.tags,
                "default queue type": definition.default_queue_type,
            }
            if known is None:
                # Definitions that a deleted vhost of this name left behind must not come back.
                self.changes += [DeleteVhost(name), definition]
                self._tell(f"vhost '{row.name}'", parts, None)
                continue
            before = {
                "description": known.description,
                "tags": known.tags,
                "default queue type": known.default_queue_type,
            }
            if parts != before:
                self.changes.append(definition)
                self._tell(f"vhost '{row.name}'", parts, before)

    # -- permissions -------------------------------------------------------------------------------

    def _add_permissions(self) -> None:
        known = {(each.vhost, each.user): each for each in self._broker.access.permissions()}
        found: dict[tuple[bytes, bytes], PutPermission] = {}
        for number, row in enumerate(self._document.permissions):
            with in_row("permissions", number):
                permission = conversion.permission_of(row, self.vhost_of(row))
                self._check_user(permission.user)
                text = f"permissions of user '{row.user}' in vhost '{row.vhost}'"
                self._check_patterns(conversion.invalid_patterns(row), text)
            found[permission.vhost, permission.user] = permission
        for key, permission in found.items():
            before = known.get(key)
            text = f"permissions of user '{name_text(key[1])}' in vhost '{name_text(key[0])}'"
            self._add(permission, text, _patterns(permission), before and _patterns(before))

    def _add_topic_permissions(self) -> None:
        found: dict[tuple[bytes, bytes, bytes], PutTopicPermission] = {}
        known = {
            (each.vhost, each.user, each.exchange): each
            for each in self._broker.access.topic_permissions()
        }
        for number, row in enumerate(self._document.topic_permissions):
            with in_row("topic_permissions", number):
                permission = conversion.topic_permission_of(row, self.vhost_of(row))
                self._check_user(permission.user)
                text = f"topic permissions of user '{row.user}' in vhost '{row.vhost}'"
                self._check_patterns(conversion.invalid_patterns(row), text)
            found[permission.vhost, permission.user, permission.exchange] = permission
        for key, permission in found.items():
            before = known.get(key)
            text = (
                f"topic permissions of user '{name_text(key[1])}' at exchange "
                f"'{name_text(key[2])}' in vhost '{name_text(key[0])}'"
            )
            self._add(permission, text, _patterns(permission), before and _patterns(before))

    def _check_user(self, name: bytes) -> None:
        if name not in self._users:
            raise Refusal(NO_SUCH_USER, f'User "{name_text(name)}" does not exist')

    @staticmethod
    def _check_patterns(invalid: list[tuple[str, str, str]], text: str) -> None:
        for kind, pattern, reason in invalid:
            raise DefinitionsError(
                f"{text}: invalid regular expression '{pattern}' for {kind}: {reason}"
            )

    # -- parameters --------------------------------------------------------------------------------

    def _add_parameters(self) -> None:
        found: dict[tuple[bytes, str, str], PutParameter] = {}
        if self._vhost is None:
            for number, row in enumerate(self._document.vhosts):
                with in_row("vhosts", number):
                    if pairs(row.limits):
                        self._put(found, conversion.vhost_limits_of(row.name, row.limits))
        for number, parameter in enumerate(self._document.parameters):
            with in_row("parameters", number):
                self._put(found, conversion.parameter_of(parameter, self.vhost_of(parameter)))
        for number, policy in enumerate(self._document.policies):
            with in_row("policies", number):
                self._put(found, conversion.policy_of(policy, self.vhost_of(policy)))
        self._add_changed(found)

    def _add_global_parameters(self) -> None:
        found: dict[tuple[bytes, str, str], PutParameter] = {}
        for number, row in enumerate(self._document.global_parameters):
            with in_row("global_parameters", number):
                self._put(found, conversion.global_parameter_of(row))
        self._add_changed(found)

    @staticmethod
    def _put(found: dict[tuple[bytes, str, str], PutParameter], parameter: PutParameter) -> None:
        found[parameter.vhost, parameter.component, parameter.name] = parameter

    def _add_changed(self, found: dict[tuple[bytes, str, str], PutParameter]) -> None:
        for key, parameter in found.items():
            text = self._broker.parameters.get(key)
            value = json.loads(parameter.value)
            if text is None:
                self._add(parameter, _parameter_text(parameter), _parts(value), None)
            else:
                before = json.loads(text)
                self._add(parameter, _parameter_text(parameter), _parts(value), _parts(before))

    # -- parts -------------------------------------------------------------------------------------

    def _add(
        self, change: Change, text: str, parts: dict[str, Any], before: dict[str, Any] | None
    ) -> None:
        if parts != before:
            self.changes.append(change)
            self._tell(text, parts, before)

    def _tell(self, text: str, parts: dict[str, Any], before: dict[str, Any] | None) -> None:
        if before is None:
            self.lines.append(f"create {text}")
            return
        changed = [
            f"{key}: {_shown(before.get(key))} -> {_shown(parts.get(key))}"
            for key in dict.fromkeys([*before, *parts])
            if before.get(key) != parts.get(key)
        ]
        self.lines.append(f"change {text}: {', '.join(changed)}")


class _Secret:
    """A part of a definition that is compared, but not shown."""

    def __init__(self, *parts: object) -> None:
        self._parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Secret) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)


def _shown(value: Any) -> str:
    return "(secret)" if isinstance(value, _Secret) else json.dumps(value, ensure_ascii=False)


def _user_parts(user: PutUser) -> dict[str, Any]:
    return {
        "password": _Secret(user.password_hash, user.hashing),
        "tags": user.tags,
        "max-connections": user.max_connections,
        "max-channels": user.max_channels,
    }


def _patterns(permission: PutPermission | PutTopicPermission) -> dict[str, Any]:
    patterns = {"write": permission.write, "read": permission.read}
    if isinstance(permission, PutPermission):
        patterns = {"configure": permission.configure} | patterns
    return patterns


def _parts(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}


def _parameter_text(parameter: PutParameter) -> str:
    vhost = name_text(parameter.vhost)
    if not parameter.component:
        return f"global parameter '{parameter.name}'"
    if parameter.component in (POLICY, OPERATOR_POLICY):
        kind = parameter.component.replace("_", " ")
        return f"{kind} '{parameter.name}' in vhost '{vhost}'"
    if parameter.component == VHOST_LIMITS:
        return f"limits of vhost '{vhost}'"
    return f"parameter '{parameter.name}' of {parameter.component} in vhost '{vhost}'"
