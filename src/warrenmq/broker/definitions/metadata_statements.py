"""The SQL of each change of the definitions."""

from typing import Any, Final

from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteGroupMember,
    DeleteParameter,
    DeletePermission,
    DeleteQueue,
    DeleteQueuePart,
    DeleteReaderGroup,
    DeleteSink,
    DeleteStage,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    PutBinding,
    PutExchange,
    PutGroupMember,
    PutParameter,
    PutPermission,
    PutQueue,
    PutQueuePart,
    PutReaderGroup,
    PutSink,
    PutStage,
    PutTopicPermission,
    PutUser,
    PutVhost,
)

# A statement with its values.
Statement = tuple[str, tuple[Any, ...]]

# These statements update instead of replacing: a row keeps its place in the order of first writing.
_PUT_VHOST: Final = (
    "INSERT INTO vhosts (name, id, description, tags, default_queue_type, is_tracing) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET id = excluded.id, description = excluded.description, tags = excluded.tags, "
    "default_queue_type = excluded.default_queue_type, is_tracing = excluded.is_tracing"
)
_PUT_USER: Final = (
    "INSERT INTO users (name, password_hash, hashing, tags, max_connections, max_channels) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET password_hash = excluded.password_hash, hashing = excluded.hashing, "
    "tags = excluded.tags, max_connections = excluded.max_connections, max_channels = excluded.max_channels"
)
_PUT_PERMISSION: Final = (
    "INSERT INTO permissions VALUES (?, ?, ?, ?, ?) ON CONFLICT (vhost, user) DO UPDATE SET "
    "configure = excluded.configure, write = excluded.write, read = excluded.read"
)
_DELETE_PERMISSION: Final = "DELETE FROM permissions WHERE vhost = ? AND user = ?"
_PUT_TOPIC_PERMISSION: Final = (
    "INSERT INTO topic_permissions VALUES (?, ?, ?, ?, ?) ON CONFLICT (vhost, user, exchange) DO UPDATE SET "
    "write = excluded.write, read = excluded.read"
)
_DELETE_TOPIC_PERMISSION: Final = (
    "DELETE FROM topic_permissions WHERE vhost = ? AND user = ? AND exchange = ?"
)
_PUT_PARAMETER: Final = (
    "INSERT INTO parameters VALUES (?, ?, ?, ?) ON CONFLICT (vhost, component, name) DO UPDATE SET "
    "value = excluded.value"
)
_DELETE_PARAMETER: Final = "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?"
_DELETE_USER: Final = (
    "DELETE FROM users WHERE name = ?",
    "DELETE FROM permissions WHERE user = ?",
    "DELETE FROM topic_permissions WHERE user = ?",
)
_DELETE_VHOST: Final = (
    "DELETE FROM vhosts WHERE name = ?",
    "DELETE FROM permissions WHERE vhost = ?",
    "DELETE FROM topic_permissions WHERE vhost = ?",
    "DELETE FROM parameters WHERE vhost = ?",
    "DELETE FROM exchanges WHERE vhost = ?",
    "DELETE FROM queues WHERE vhost = ?",
    "DELETE FROM queue_parts WHERE vhost = ?",
    "DELETE FROM bindings WHERE vhost = ?",
    "DELETE FROM reader_groups WHERE vhost = ?",
    "DELETE FROM reader_group_members WHERE vhost = ?",
    "DELETE FROM stages WHERE vhost = ?",
    "DELETE FROM sinks WHERE vhost = ?",
)
_PUT_EXCHANGE: Final = (
    "INSERT INTO exchanges VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, name) DO UPDATE SET type = excluded.type, "
    "auto_delete = excluded.auto_delete, internal = excluded.internal, arguments = excluded.arguments"
)
_DELETE_EXCHANGE: Final = "DELETE FROM exchanges WHERE vhost = ? AND name = ?"
_PUT_QUEUE: Final = (
    "INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, id) DO UPDATE SET name = excluded.name, "
    "durable = excluded.durable, auto_delete = excluded.auto_delete, arguments = excluded.arguments, "
    "birth = excluded.birth"
)
_DELETE_QUEUE: Final = "DELETE FROM queues WHERE vhost = ? AND id = ?"
_PUT_QUEUE_PART: Final = (
    "INSERT INTO queue_parts VALUES (?, ?, ?, ?) ON CONFLICT (vhost, id) DO UPDATE SET "
    "owner = excluded.owner, number = excluded.number"
)
_DELETE_QUEUE_PART: Final = "DELETE FROM queue_parts WHERE vhost = ? AND id = ?"
_DELETE_QUEUE_PARTS: Final = "DELETE FROM queue_parts WHERE vhost = ? AND owner = ?"
# Marks an id as used: a queue whose definition was refused may have messages in the journal, and a
# start must treat it as deleted.
_NUMBER_QUEUE: Final = "UPDATE numbering SET next_queue_id = ?1 + 1 WHERE next_queue_id <= ?1"
_PUT_BINDING: Final = "INSERT INTO bindings VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_DELETE_BINDING: Final = (
    "DELETE FROM bindings WHERE vhost = ? AND source = ? AND destination = ? AND destination_is_queue = ? "
    "AND key = ? AND arguments = ?"
)
_PUT_READER_GROUP: Final = (
    "INSERT INTO reader_groups VALUES (?, ?, ?, ?) ON CONFLICT (vhost, name) DO UPDATE SET "
    "epoch = excluded.epoch, pattern = excluded.pattern"
)
_PUT_STAGE: Final = (
    "INSERT INTO stages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, id) DO UPDATE SET sink = excluded.sink, "
    "batch = excluded.batch, finished_ms = excluded.finished_ms, message_count = excluded.message_count, "
    "unroutable_count = excluded.unroutable_count, unroutable = excluded.unroutable, "
    "target = excluded.target"
)
_DELETE_STAGE: Final = "DELETE FROM stages WHERE vhost = ? AND id = ?"
_PUT_SINK: Final = (
    "INSERT INTO sinks VALUES (?, ?, ?, ?) ON CONFLICT (vhost, name) DO UPDATE SET batch = excluded.batch, "
    "stages = excluded.stages"
)
_DELETE_SINK: Final = "DELETE FROM sinks WHERE vhost = ? AND name = ?"
_DELETE_READER_GROUP: Final = "DELETE FROM reader_groups WHERE vhost = ? AND name = ?"
_PUT_GROUP_MEMBER: Final = (
    'INSERT INTO reader_group_members VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, "group", queue_id) DO UPDATE '
    "SET queue_name = excluded.queue_name, acked = excluded.acked, reserved = excluded.reserved, "
    "is_ended = excluded.is_ended"
)
_DELETE_GROUP_MEMBER: Final = (
    'DELETE FROM reader_group_members WHERE vhost = ? AND "group" = ? AND queue_id = ?'
)
_DELETE_GROUP_MEMBERS: Final = 'DELETE FROM reader_group_members WHERE vhost = ? AND "group" = ?'


def statements(change: Change) -> list[Statement]:
    """The SQL statements of one change, each with its values."""
    match change:
        case DeleteReaderGroup():
            return [
                (_DELETE_READER_GROUP, (change.vhost, change.name)),
                (_DELETE_GROUP_MEMBERS, (change.vhost, change.name)),
            ]
        case DeleteQueue():
            return [
                (_DELETE_QUEUE, (change.vhost, change.id)),
                (_DELETE_QUEUE_PARTS, (change.vhost, change.id)),
                (_NUMBER_QUEUE, (change.id,)),
            ]
        case DeleteUser():
            return [(sql, (change.name,)) for sql in _DELETE_USER]
        case DeleteVhost():
            return [(sql, (change.name,)) for sql in _DELETE_VHOST]
    return [_statement(change)]


def _statement(change: Change) -> Statement:
    match change:
        case PutReaderGroup():
            return _PUT_READER_GROUP, (change.vhost, change.name, change.epoch, change.pattern)
        case PutGroupMember():
            return _PUT_GROUP_MEMBER, (
                change.vhost, change.group, change.queue_id, change.queue_name, change.acked, change.reserved,
                change.is_ended,
            )  # fmt: skip
        case DeleteGroupMember():
            return _DELETE_GROUP_MEMBER, (change.vhost, change.group, change.queue_id)
        case PutQueue():
            return _PUT_QUEUE, (
                change.vhost, change.id, change.name, change.durable, change.auto_delete, change.arguments,
                change.birth,
            )  # fmt: skip
        case PutQueuePart():
            return _PUT_QUEUE_PART, (change.vhost, change.id, change.owner, change.number)
        case DeleteQueuePart():
            return _DELETE_QUEUE_PART, (change.vhost, change.id)
        case PutBinding():
            return _PUT_BINDING, _binding_values(change)
        case DeleteBinding():
            return _DELETE_BINDING, _binding_values(change)
        case PutExchange():
            return _PUT_EXCHANGE, (
                change.vhost, change.name, change.type, change.auto_delete, change.internal, change.arguments,
            )  # fmt: skip
        case DeleteExchange():
            return _DELETE_EXCHANGE, (change.vhost, change.name)
        case PutStage():
            return _PUT_STAGE, (
                change.vhost, change.id, change.sink, change.batch, change.finished_ms, change.message_count,
                change.unroutable_count, change.unroutable, change.target,
            )  # fmt: skip
        case DeleteStage():
            return _DELETE_STAGE, (change.vhost, change.id)
        case PutSink():
            return _PUT_SINK, (
                change.vhost,
                change.name,
                change.batch,
                " ".join(map(str, change.stages)),
            )
        case DeleteSink():
            return _DELETE_SINK, (change.vhost, change.name)
    return _control_statement(change)


def _control_statement(change: Change) -> Statement:
    """The statement of a change of vhosts, users, permissions or parameters."""
    match change:
        case PutPermission():
            return _PUT_PERMISSION, (
                change.vhost, change.user, change.configure, change.write, change.read,
            )  # fmt: skip
        case DeletePermission():
            return _DELETE_PERMISSION, (change.vhost, change.user)
        case PutTopicPermission():
            return _PUT_TOPIC_PERMISSION, (
                change.vhost, change.user, change.exchange, change.write, change.read,
            )  # fmt: skip
        case DeleteTopicPermission():
            return _DELETE_TOPIC_PERMISSION, (change.vhost, change.user, change.exchange)
        case PutParameter():
            return _PUT_PARAMETER, (change.vhost, change.component, change.name, change.value)
        case DeleteParameter():
            return _DELETE_PARAMETER, (change.vhost, change.component, change.name)
        case PutUser():
            return _PUT_USER, (
                change.name, change.password_hash, change.hashing, "\n".join(change.tags),
                change.max_connections, change.max_channels,
            )  # fmt: skip
        case PutVhost():
            return _PUT_VHOST, (
                change.name, change.id, change.description, "\n".join(change.tags), change.default_queue_type,
                change.is_tracing,
            )  # fmt: skip
    raise TypeError(f"{type(change).__name__} is no change that can be stored")


def _binding_values(change: PutBinding | DeleteBinding) -> tuple[Any, ...]:
    return (
        change.vhost, change.source, change.destination, change.destination_is_queue, change.key, change.arguments,
    )  # fmt: skip
