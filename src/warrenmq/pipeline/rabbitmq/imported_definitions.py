"""Converts definitions of a RabbitMQ node for warren, and lists those that it does not support."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

from warrenmq.broker.definitions.metadata import (
    Definitions,
    PutBinding,
    PutExchange,
    PutPermission,
    PutQueue,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.passwords import HASHING_ALGORITHMS, SHA256, hash_password
from warrenmq.broker.definitions.rights import Right
from warrenmq.queues.arguments import parse_arguments
from warrenmq.tables.rabbitmq.definitions import Definitions as Export
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import Field, encode_table, fields_from_python

NAME_BYTES_MAX: Final = 255
_EXCHANGE_TYPES: Final = ("direct", "fanout", "topic", "headers")
_DEFAULT_VHOST: Final = "/"
_PERMISSION_KINDS: Final = ("configure", "write", "read")
# Sections of an export that are converted, or that have nothing worth keeping.
_KNOWN_SECTIONS: Final = {
    "rabbit_version", "rabbitmq_version", "product_name", "product_version", "users", "permissions",
    "rabbitmq_definition_format", "original_vhost_name", "description", "metadata", "default_queue_type",
}  # fmt: skip


class ImportedDefinitions:
    """Converted definitions, ids of vhosts and of queues, and lines on what was left out.

    `queue_ids` has its ids by (vhost, queue).
    """

    def __init__(
        self, export: Export | None, found: Iterable[tuple[str, str]], vhosts: Iterable[str]
    ) -> None:
        """`found` and `vhosts` are the queues and vhosts that have data, defined or not."""
        self.definitions = Definitions()
        self.left_out: list[str] = []
        self.queue_ids: dict[tuple[str, str], int] = {}
        self.vhost_ids: dict[str, int] = {}
        self._export = export or Export()
        vhosts = list(vhosts)
        # Vhost of rows without one: an export of a single vhost does not name it.
        self._only = vhosts[0] if len(vhosts) == 1 else _DEFAULT_VHOST
        defined = [vhost.name for vhost in self._export.vhosts]
        defined += [row.vhost or self._only for row in self._export.queues]
        defined += [row.vhost or self._only for row in self._export.exchanges]
        for name in dict.fromkeys([*defined, *vhosts]):
            self.vhost_ids[name] = len(self.vhost_ids) + 1
            self.definitions.vhosts.append(PutVhost(name.encode(), self.vhost_ids[name]))
        self._add_users()
        self._add_exchanges()
        self._add_queues(found)
        self._add_bindings()
        self._tell_sections()

    # -- users -------------------------------------------------------------------------------------

    def _add_users(self) -> None:
        for row in _objects(self._export.other.get("users")):
            name, hashing = _text(row, "name"), _text(row, "hashing_algorithm", SHA256)
            try:
                password_hash = base64.b64decode(_text(row, "password_hash"), validate=True)
            except binascii.Error:
                password_hash = b""
            if not name or hashing not in HASHING_ALGORITHMS:
                self.left_out.append(f"user '{name}'")
                continue
            tags = row.get("tags")
            # Before RabbitMQ 3.9 the tags were one text, separated by commas.
            tags = (
                tags.split(",") if isinstance(tags, str) else tags if isinstance(tags, list) else []
            )
            self.definitions.users.append(
                PutUser(name.encode(), password_hash, hashing, [str(tag) for tag in tags if tag])
            )
        users = {user.name for user in self.definitions.users}
        for row in _objects(self._export.other.get("permissions")):
            vhost, user = _text(row, "vhost", self._only), _text(row, "user")
            if vhost not in self.vhost_ids or user.encode() not in users:
                self.left_out.append(f"the permissions of user '{user}' in vhost '{vhost}'")
                continue
            patterns = {kind: _text(row, kind) for kind in _PERMISSION_KINDS}
            self.definitions.permissions.append(
                PutPermission(vhost.encode(), user.encode(), *patterns.values())
            )
            for kind, pattern in patterns.items():
                if not Right(pattern).is_valid():
                    self.left_out.append(
                        f"the {kind} permission '{pattern}' of user '{user}' in vhost '{vhost}': "
                        "Python cannot compile it, so it allows nothing"
                    )
        if not self.definitions.users:
            self.definitions.users.append(
                PutUser(b"guest", hash_password(b"guest"), SHA256, ["administrator"])
            )
            for vhost in self.vhost_ids:
                self.definitions.permissions.append(
                    PutPermission(vhost.encode(), b"guest", ".*", ".*", ".*")
                )

    # -- exchanges, queues and bindings ------------------------------------------------------------

    def _add_exchanges(self) -> None:
        for row in self._export.exchanges:
            vhost = row.vhost or self._only
            if not row.durable:
                continue
            arguments = self._table(row.arguments, f"exchange '{row.name}' in vhost '{vhost}'")
            if row.type not in _EXCHANGE_TYPES or _is_too_long(row.name):
                self.left_out.append(
                    f"exchange '{row.name}' in vhost '{vhost}', of type {row.type}"
                )
                continue
            self.definitions.exchanges.append(
                PutExchange(
                    vhost.encode(),
                    row.name.encode(),
                    row.type.encode(),
                    row.auto_delete,
                    row.internal,
                    encode_table(arguments),
                )
            )

    def _add_queues(self, found: Iterable[tuple[str, str]]) -> None:
        for row in self._export.queues:
            if row.durable:
                self._add_queue(row.vhost or self._only, row.name, row.auto_delete, row.arguments)
        for vhost, name in found:
            if (vhost, name) not in self.queue_ids:
                self._add_queue(vhost, name, False, {})

    def _add_queue(self, vhost: str, name: str, auto_delete: bool, given: dict[str, Any]) -> None:
        text = f"queue '{name}' in vhost '{vhost}'"
        if _is_too_long(name) or (vhost, name) in self.queue_ids:
            self.left_out.append(text)
            return
        arguments: dict[str, Field] = {}
        for key, field in self._table(given, text).items():
            try:
                parse_arguments(encode_table({key: field}), text)
            except AmqpError:
                # Leave the argument out: a node would not start with a queue that has it.
                self.left_out.append(f"argument {key} of {text}")
                continue
            arguments[key] = field
        self.queue_ids[vhost, name] = len(self.queue_ids) + 1
        self.definitions.queues.append(
            PutQueue(
                vhost.encode(),
                self.queue_ids[vhost, name],
                name.encode(),
                True,
                auto_delete,
                encode_table(arguments),
            )
        )

    def _add_bindings(self) -> None:
        exchanges = {(row.vhost, row.name) for row in self.definitions.exchanges}
        queues = {(row.vhost, row.name) for row in self.definitions.queues}
        for row in self._export.bindings:
            vhost = (row.vhost or self._only).encode()
            source, destination = row.source.encode(), row.destination.encode()
            is_queue = row.destination_type == "queue"
            ends = queues if is_queue else exchanges
            # Assume that "amq." exchanges exist: exports do not contain predeclared exchanges.
            is_known = (vhost, source) in exchanges or row.source.startswith("amq.")
            if not is_known or (vhost, destination) not in ends or _is_too_long(row.routing_key):
                self.left_out.append(
                    f"the binding of '{row.destination}' to '{row.source}' in vhost '{vhost.decode()}'"
                )
                continue
            arguments = self._table(
                row.arguments, f"the binding of '{row.destination}' to '{row.source}'"
            )
            self.definitions.bindings.append(
                PutBinding(
                    vhost,
                    source,
                    destination,
                    is_queue,
                    row.routing_key.encode(),
                    encode_table(arguments),
                )
            )

    def _table(self, given: dict[str, Any], text: str) -> dict[str, Field]:
        found: dict[str, Field] = {}
        for key, value in given.items():
            try:
                found |= fields_from_python({key: value})
            except (ValueError, TypeError):
                self.left_out.append(f"argument {key} of {text}")
        return found

    def _tell_sections(self) -> None:
        for name, rows in self._export.other.items():
            if rows and name not in _KNOWN_SECTIONS:
                count = f"{len(rows)} " if isinstance(rows, list) else ""
                self.left_out.append(f"{count}{name.replace('_', ' ')}")


def _objects(rows: Any) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _text(row: dict[str, Any], key: str, default: str = "") -> str:
    value = row.get(key, default)
    return value if isinstance(value, str) else default


def _is_too_long(name: str) -> bool:
    return len(name.encode()) > NAME_BYTES_MAX
