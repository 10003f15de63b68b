"""Converts definitions of a RabbitMQ node for a new store, and lists those that have no place."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from warrenmq.admin.definitions import conversion, document
from warrenmq.broker.definitions.metadata import (
    Definitions,
    PutParameter,
    PutPermission,
    PutTopicPermission,
    PutUser,
)
from warrenmq.broker.definitions.passwords import SHA256, hash_password
from warrenmq.routing.router import PREDECLARED

if TYPE_CHECKING:
    from warrenmq.tables.rabbitmq.import_plan import DefinedQueue

_DEFAULT_VHOST: Final = "/"
_Row = TypeVar("_Row", document.ParameterRow, document.PolicyRow)


def defined_queues(export: document.Document | None) -> "list[DefinedQueue]":
    """The queues of an export, which name directories that have lost their names."""
    from warrenmq.tables.rabbitmq.import_plan import DefinedQueue

    found = []
    for row in export.queues if export is not None else []:
        levels = document.pairs(row.arguments).get("x-max-priority")
        levels = levels if isinstance(levels, int) else 0
        found.append(DefinedQueue(row.vhost, row.name, levels))
    return found


class ImportedDefinitions:
    """Converted definitions, ids of vhosts and of queues, and lines on what was left out.

    `queue_ids` has its ids by (vhost, queue).
    """

    def __init__(
        self,
        export: document.Document | None,
        found: Iterable[tuple[str, str]],
        vhosts: Iterable[str],
    ) -> None:
        """`found` and `vhosts` are the queues and vhosts that have data, defined or not."""
        self.definitions = Definitions()
        self._export = export or document.Document()
        self.left_out: list[str] = list(self._export.left_out)
        self.queue_ids: dict[tuple[str, str], int] = {}
        self.vhost_ids: dict[str, int] = {}
        vhosts = list(vhosts)
        # Vhost of rows without one: an export of a single vhost does not name it.
        self._only = vhosts[0] if len(vhosts) == 1 else _DEFAULT_VHOST
        self._add_vhosts(vhosts)
        self._add_users()
        self._add_parameters()
        self._add_exchanges()
        self._add_queues(found)
        self._add_bindings()

    def _add_vhosts(self, found: list[str]) -> None:
        export = self._export
        rows = {row.name: row for row in export.vhosts}
        used = [each.vhost or self._only for each in export.queues]
        used += [each.vhost or self._only for each in export.exchanges]
        for name in dict.fromkeys([*rows, *used, *found]):
            self.vhost_ids[name] = len(self.vhost_ids) + 1
            row = rows.get(name, document.VhostRow(name=name))
            self.definitions.vhosts.append(conversion.vhost_of(row, self.vhost_ids[name]))

    # -- users and parameters ----------------------------------------------------------------------

    def _add_users(self) -> None:
        found = self.definitions
        for row in self._export.users:
            self._convert(partial(self._add_user, row))
        users = {user.name for user in found.users}
        for each in self._export.permissions:
            permission = conversion.permission_of(each, each.vhost or self._only)
            text = f"the permissions of user '{each.user}' in vhost '{each.vhost or self._only}'"
            if self._has_place(permission, users, text):
                found.permissions.append(permission)
                self._tell_patterns(each, "permission")
        for one in self._export.topic_permissions:
            topic = conversion.topic_permission_of(one, one.vhost or self._only)
            text = (
                f"the topic permissions of user '{one.user}' in vhost '{one.vhost or self._only}'"
            )
            if self._has_place(topic, users, text):
                found.topic_permissions.append(topic)
                self._tell_patterns(one, "topic permission")
        if not found.users:
            found.users.append(
                PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"])
            )
            for vhost in found.vhosts:
                found.permissions.append(PutPermission(vhost.name, b"guest", ".*", ".*", ".*"))

    def _add_user(self, row: document.UserRow) -> None:
        self.definitions.users.append(conversion.user_of(row, self._export.version))

    def _has_place(
        self, permission: PutPermission | PutTopicPermission, users: set[bytes], text: str
    ) -> bool:
        vhosts = {vhost.name for vhost in self.definitions.vhosts}
        if permission.vhost in vhosts and permission.user in users:
            return True
        self.left_out.append(text)
        return False

    def _tell_patterns(
        self, row: document.PermissionRow | document.TopicPermissionRow, what: str
    ) -> None:
        for kind, pattern, reason in conversion.invalid_patterns(row):
            self.left_out.append(
                f"the {kind} {what} '{pattern}' of user '{row.user}' in vhost "
                f"'{row.vhost or self._only}': {reason}, so it allows nothing"
            )

    def _add_parameters(self) -> None:
        for row in self._export.parameters:
            self._convert(
                partial(self._add_parameter, conversion.parameter_of, row, row.vhost or self._only)
            )
        for policy in self._export.policies:
            vhost = policy.vhost or self._only
            self._convert(partial(self._add_parameter, conversion.policy_of, policy, vhost))
        for each in self._export.global_parameters:
            self.definitions.parameters.append(conversion.global_parameter_of(each))

    def _add_parameter(
        self, convert: Callable[[_Row, str], PutParameter], row: _Row, vhost: str
    ) -> None:
        if vhost not in self.vhost_ids:
            raise conversion.LeftOut(f"parameter '{row.name}' in vhost '{vhost}'")
        self.definitions.parameters.append(convert(row, vhost))

    # -- exchanges, queues and bindings ------------------------------------------------------------

    def _add_exchanges(self) -> None:
        for row in self._export.exchanges:
            if row.durable:
                self._convert(partial(self._add_exchange, row, row.vhost or self._only))

    def _add_exchange(self, row: document.ExchangeRow, vhost: str) -> None:
        self.definitions.exchanges.append(conversion.exchange_of(row, vhost, self.left_out))

    def _add_queues(self, found: Iterable[tuple[str, str]]) -> None:
        for row in self._export.queues:
            if row.durable:
                self._convert(partial(self._add_queue, row, row.vhost or self._only))
        for vhost, name in found:
            if (vhost, name) not in self.queue_ids:
                self._convert(partial(self._add_queue, document.QueueRow(name=name), vhost))

    def _add_queue(self, row: document.QueueRow, vhost: str) -> None:
        if (vhost, row.name) in self.queue_ids:
            raise conversion.LeftOut(f"another queue '{row.name}' in vhost '{vhost}'")
        queue_id = len(self.queue_ids) + 1
        self.definitions.queues.append(conversion.queue_of(row, vhost, queue_id, self.left_out))
        self.queue_ids[vhost, row.name] = queue_id

    def _add_bindings(self) -> None:
        exchanges = {(row.vhost, row.name) for row in self.definitions.exchanges}
        for vhost in self.definitions.vhosts:
            exchanges |= {(vhost.name, name) for name, _, _ in PREDECLARED}
        queues = {(row.vhost, row.name) for row in self.definitions.queues}

        def add(row: document.BindingRow, vhost: str) -> None:
            binding = conversion.binding_of(row, vhost, self.left_out)
            ends = queues if binding.destination_is_queue else exchanges
            is_known = (binding.vhost, binding.source) in exchanges
            if not is_known or (binding.vhost, binding.destination) not in ends:
                raise conversion.LeftOut(conversion.binding_text(row, vhost))
            self.definitions.bindings.append(binding)

        for row in self._export.bindings:
            self._convert(partial(add, row, row.vhost or self._only))

    def _convert(self, convert: Callable[[], None]) -> None:
        """Convert one row; what has no place, or is wrong, is left out."""
        try:
            convert()
        except (conversion.LeftOut, document.DefinitionsError) as error:
            self.left_out.append(str(error))
