"""Converts rows of a document to definitions of the broker, one by one.

A row that is wrong raises DefinitionsError. A row, or a part of one, that is right but asks for
what this broker does not have, is left out, and the caller gets a text that says so.
"""

import base64
import binascii
import json
from typing import Any, Final

import msgspec

from warrenmq.admin.definitions import document
from warrenmq.admin.definitions.json_values import fields_of, name_of
from warrenmq.admin.protocol.schedules import PIPELINE_SCHEDULE, parse_schedule
from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.limits import VHOST_LIMITS, check_limits
from warrenmq.broker.definitions.passwords import (
    HASHING_ALGORITHMS,
    MD5,
    SALT_BYTES,
    SHA256,
    SHA512,
    hash_password,
    is_password,
)
from warrenmq.broker.definitions.rights import Right
from warrenmq.broker.policies.mirroring import normal_definition
from warrenmq.broker.policies.policy import OPERATOR_POLICY, POLICY, check_policy
from warrenmq.queues.arguments import parse_arguments
from warrenmq.routing.equivalence import resource_text
from warrenmq.routing.exchange_types import make_exchange
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import Field, encode_table

_VHOST_LIMITS: Final = (VHOST_LIMITS, "limits")
# Sizes of hashes with their salt.
_HASH_BYTES: Final = {SHA256: SALT_BYTES + 32, SHA512: SALT_BYTES + 64, MD5: SALT_BYTES + 16}
# Arguments of queues without which others are refused.
_DECIDES_OTHERS: Final = ("x-queue-type", "x-dead-letter-exchange")
_QUEUE: Final = "queue"
_EXCHANGE: Final = "exchange"
_USER_LIMITS: Final = ("max-connections", "max-channels")
# RabbitMQ up to this version did not export the algorithm, which was MD5.
_LAST_MD5_VERSION: Final = (3, 5)


class LeftOut(Exception):
    """The definition has no place in this broker; the text says why."""


# -- users and vhosts ------------------------------------------------------------------------------


def user_of(
    row: document.UserRow, version: str, known: metadata.PutUser | None = None
) -> metadata.PutUser:
    """The user of a row, written by RabbitMQ `version`; `known` is the user of that name, if any.

    Without a password or a hash, a known user keeps its password and a new one cannot log in.
    """
    name = name_of(row.name, "user name")
    if not name:
        raise document.DefinitionsError("user name cannot be empty")
    password_hash, hashing = _password(row, version, known)
    limits = _user_limits(row)
    return metadata.PutUser(
        name,
        password_hash,
        hashing,
        document.tag_list(row.tags),
        limits.get("max-connections", metadata.NO_LIMIT),
        limits.get("max-channels", metadata.NO_LIMIT),
    )


def _password(
    row: document.UserRow, version: str, known: metadata.PutUser | None
) -> tuple[bytes, str]:
    if row.password_hash is None and row.password is None:
        return (b"", SHA256) if known is None else (known.password_hash, known.hashing)
    if row.password_hash is None:
        password = (row.password or "").encode()
        # A new hash has new salt: keep the known one, so that another import changes nothing.
        if known is not None and is_password(password, known.password_hash, known.hashing):
            return known.password_hash, known.hashing
        return (hash_password(password) if password else b""), SHA256
    hashing = row.hashing_algorithm or (MD5 if _is_md5_version(version) else SHA256)
    if hashing not in HASHING_ALGORITHMS:
        raise document.DefinitionsError(f"user '{row.name}': unknown hashing algorithm '{hashing}'")
    try:
        password_hash = base64.b64decode(row.password_hash, validate=True)
    except (binascii.Error, ValueError):
        raise document.DefinitionsError(f"user '{row.name}': password_hash is not base64") from None
    if password_hash and len(password_hash) != _HASH_BYTES[hashing]:
        raise document.DefinitionsError(
            f"user '{row.name}': password_hash has {len(password_hash)} bytes, "
            f"but {hashing} has {_HASH_BYTES[hashing]}"
        )
    return password_hash, hashing


def _is_md5_version(version: str) -> bool:
    parts = version.split(".")
    return (
        len(parts) > 1
        and all(part.isdecimal() for part in parts[:2])
        and (int(parts[0]), int(parts[1])) <= _LAST_MD5_VERSION
    )


def _user_limits(row: document.UserRow) -> dict[str, int]:
    limits = document.pairs(row.limits)
    for key, value in limits.items():
        if key not in _USER_LIMITS:
            raise document.DefinitionsError(f"user '{row.name}': unknown limit '{key}'")
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 62:
            raise document.DefinitionsError(f"user '{row.name}': {key} should be a number")
    return {key: max(value, metadata.NO_LIMIT) for key, value in limits.items()}


def vhost_of(
    row: document.VhostRow, vhost_id: int, known: metadata.PutVhost | None = None
) -> metadata.PutVhost:
    """The vhost of a row, or `known` as the row changes it.

    As in RabbitMQ, a row that has a part of the metadata replaces all of it.
    """
    name = name_of(row.name, "vhost name")
    if not name:
        raise document.DefinitionsError("vhost name cannot be empty")
    inner = row.metadata
    given = [row] if inner is None else [row, inner]
    description = next((each.description for each in given if each.description is not None), None)
    tags = next((each.tags for each in given if each.tags is not None), None)
    queue_type = next(
        (each.default_queue_type for each in given if each.default_queue_type is not None), None
    )
    if known is not None and description is None and tags is None and queue_type is None:
        return known
    return metadata.PutVhost(
        name,
        vhost_id if known is None else known.id,
        description or "",
        document.tag_list(tags),
        "" if queue_type in (None, "undefined") else str(queue_type),
        known is not None and known.is_tracing,
    )


def permission_of(row: document.PermissionRow, vhost: str) -> metadata.PutPermission:
    """The permissions of a row; `invalid_patterns` checks them."""
    names = name_of(vhost, "vhost name"), name_of(row.user, "user name")
    return metadata.PutPermission(*names, row.configure, row.write, row.read)


def topic_permission_of(
    row: document.TopicPermissionRow, vhost: str
) -> metadata.PutTopicPermission:
    """The topic permissions of a row; `invalid_patterns` checks them."""
    exchange = name_of(row.exchange, "exchange name")
    names = name_of(vhost, "vhost name"), name_of(row.user, "user name"), exchange
    return metadata.PutTopicPermission(*names, row.write, row.read)


def invalid_patterns(
    row: document.PermissionRow | document.TopicPermissionRow,
) -> list[tuple[str, str, str]]:
    """The kind, the pattern and the reason of each that is refused; it allows nothing."""
    patterns = {"write": row.write, "read": row.read}
    if isinstance(row, document.PermissionRow):
        patterns = {"configure": row.configure} | patterns
    found = [(kind, pattern, Right(pattern).error) for kind, pattern in patterns.items()]
    return [each for each in found if each[2]]


# -- parameters ------------------------------------------------------------------------------------


def policy_of(row: document.PolicyRow, vhost: str) -> metadata.PutParameter:
    """The policy of a row."""
    value = {
        "pattern": row.pattern,
        "definition": normal_definition(document.pairs(row.definition)),
        "priority": row.priority,
        "apply-to": row.apply_to,
    }
    return _checked(vhost, POLICY, row.name, value)


def parameter_of(row: document.ParameterRow, vhost: str) -> metadata.PutParameter:
    """The parameter of a row, with values that are lists of pairs made objects."""
    value = row.value
    if row.component in (POLICY, OPERATOR_POLICY):
        value = _object(value)
        if isinstance(value, dict):
            value = {
                key: _definition(part) if key == "definition" else part
                for key, part in value.items()
            }
    elif (row.component, row.name) == _VHOST_LIMITS:
        value = _object(value)
    elif not row.component:
        raise document.DefinitionsError(
            f"parameter '{row.name}' in vhost '{vhost}' has no component"
        )
    return _checked(vhost, row.component, row.name, value)


def vhost_limits_of(vhost: str, limits: document.Pairs) -> metadata.PutParameter:
    """The limits that stand in the row of a vhost."""
    return _checked(vhost, *_VHOST_LIMITS, document.pairs(limits))


def global_parameter_of(row: document.GlobalParameterRow) -> metadata.PutParameter:
    """The global parameter of a row."""
    return metadata.PutParameter(b"", "", row.name, _json(row.value))


def _checked(vhost: str, component: str, name: str, value: Any) -> metadata.PutParameter:
    text = _json(value)
    try:
        if component in (POLICY, OPERATOR_POLICY):
            check_policy(component, name, text)
        elif (component, name) == _VHOST_LIMITS:
            check_limits(text)
        elif component == PIPELINE_SCHEDULE:
            parse_schedule(text)
    except ValueError as error:
        kind = component.replace("_", " ")
        reason = str(error).removeprefix("Validation failed").strip().replace("\n", "; ")
        raise document.DefinitionsError(f"{kind} '{name}' in vhost '{vhost}': {reason}") from None
    return metadata.PutParameter(name_of(vhost, "vhost name"), component, name, text)


def _definition(value: Any) -> Any:
    """The definition of a policy as it is stored; what is none, unchanged."""
    found = _object(value)
    return normal_definition(found) if isinstance(found, dict) else found


def _object(value: Any) -> Any:
    """The object that a list of pairs stands for; anything else unchanged."""
    try:
        return dict(msgspec.convert(value, document.Pairs))
    except msgspec.ValidationError:
        return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# -- exchanges, queues and bindings ----------------------------------------------------------------


def exchange_of(row: document.ExchangeRow, vhost: str, left_out: list[str]) -> metadata.PutExchange:
    """The exchange of a row, durable or not. Raises LeftOut."""
    name, vhost_name = name_of(row.name, "exchange name"), name_of(vhost, "vhost name")
    text = resource_text(_EXCHANGE, name, vhost_name)
    if not name or name.startswith(b"amq."):
        raise LeftOut(f"{text}: the name is reserved")
    type = row.type.encode()
    arguments = encode_table(_fields(row.arguments, text, left_out))
    try:
        make_exchange(name, type, row.durable, row.auto_delete, row.internal, arguments)
    except AmqpError as error:
        raise LeftOut(f"{text}: {error.text.partition(' - ')[2]}") from None
    return metadata.PutExchange(vhost_name, name, type, row.auto_delete, row.internal, arguments)


def queue_of(
    row: document.QueueRow, vhost: str, queue_id: int, left_out: list[str]
) -> metadata.PutQueue:
    """The queue of a row, durable or not, with the arguments that this broker supports.

    Raises LeftOut.
    """
    name, vhost_name = name_of(row.name, "queue name"), name_of(vhost, "vhost name")
    text = resource_text(_QUEUE, name, vhost_name)
    if not name:
        raise LeftOut(f"{text}: the name is empty")
    given = _fields(row.arguments, text, left_out)
    arguments: dict[str, Field] = {}
    reasons: dict[str, str] = {}
    for key in sorted(given, key=lambda name: name not in _DECIDES_OTHERS):
        try:
            parse_arguments(encode_table({**arguments, key: given[key]}), text)
        except AmqpError as error:
            # Leave the argument out: the broker would not declare a queue that has it.
            reasons[key] = f"argument {key} of {text}: {_reason(error)}"
            continue
        arguments[key] = given[key]
    left_out.extend(reasons[key] for key in given if key in reasons)
    encoded = encode_table({key: arguments[key] for key in given if key in arguments})
    return metadata.PutQueue(vhost_name, queue_id, name, row.durable, row.auto_delete, encoded)


def binding_of(row: document.BindingRow, vhost: str, left_out: list[str]) -> metadata.PutBinding:
    """The binding of a row; its ends are not looked up. Raises LeftOut."""
    if row.destination_type not in (_QUEUE, _EXCHANGE):
        raise document.DefinitionsError(
            f"{binding_text(row, vhost)}: unknown destination type '{row.destination_type}'"
        )
    if not row.source:
        raise LeftOut(f"{binding_text(row, vhost)}: the default exchange binds each queue itself")
    return metadata.PutBinding(
        name_of(vhost, "vhost name"),
        name_of(row.source, "exchange name"),
        name_of(row.destination, f"{row.destination_type} name"),
        row.destination_type == _QUEUE,
        name_of(row.routing_key, "routing key"),
        encode_table(_fields(row.arguments, binding_text(row, vhost), left_out)),
    )


def binding_text(row: document.BindingRow, vhost: str) -> str:
    """A binding for people."""
    return (
        f"binding of {row.destination_type} '{row.destination}' to exchange '{row.source}' "
        f"with key '{row.routing_key}' in vhost '{vhost}'"
    )


def _fields(given: document.Pairs, text: str, left_out: list[str]) -> dict[str, Field]:
    """The fields of arguments; those that no table can hold are left out."""
    found: dict[str, Field] = {}
    for key, value in document.pairs(given).items():
        try:
            field = fields_of({key: value})
            encode_table(field)
        except (ValueError, TypeError) as error:
            left_out.append(f"argument {key} of {text}: {error}")
        else:
            found |= field
    return found


def _reason(error: AmqpError) -> str:
    """The part of a refusal that does not repeat argument and queue."""
    return error.text.rpartition("': ")[2].strip('"')
