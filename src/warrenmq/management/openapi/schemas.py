"""Schemas of the objects in replies, and of the bodies of requests.

A field that is missing here may be in a reply all the same; those that are here have their type.
"""

from typing import Any, Final

from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS, ColumnType

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
NUMBER: Final[Schema] = {"type": "integer"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
TABLE: Final[Schema] = {"type": "object"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
ANY: Final[Schema] = {}
# Values that tools send as strings too.
_SENT_FLAG: Final[Schema] = {"anyOf": [FLAG, {"enum": ["true", "false"]}]}
_SENT_NUMBER: Final[Schema] = {"anyOf": [NUMBER, {"type": "string", "pattern": "^-?[0-9]{1,18}$"}]}
_SENT_TEXTS: Final[Schema] = {"anyOf": [TEXTS, TEXT]}


def fields(required: str = "", /, **known: Schema) -> Schema:
    """The schema of an object with these fields, of which some are `required`, and others."""
    schema: Schema = {"type": "object", "properties": known}
    if required:
        schema["required"] = required.split()
    return schema


_OF_COLUMN: Final[dict[ColumnType, Schema]] = {
    "text": TEXT,
    "flag": FLAG,
    "number": NUMBER,
    "count": NUMBER,
    "bytes": NUMBER,
    "total": NUMBER,
    "share": {"type": "number"},
    "list": {"type": "array"},
    "map": TABLE,
}


def _column(kind: ColumnType, meaning: str) -> Schema:
    return {"anyOf": [_OF_COLUMN[kind], {"type": "null"}], "description": meaning}


_NAMED: Final = {"name": TEXT, "vhost": TEXT}
_POLICY: Final = fields(
    **_NAMED, pattern=TEXT, definition=TABLE, priority=NUMBER, **{"apply-to": TEXT}
)
# By the first segment of the path.
OBJECTS: Final[dict[str, Schema]] = {
    "queues": fields(
        **{name: _column(each.type, each.meaning) for name, each in QUEUE_COLUMNS.items()},
        node=TEXT,
        idle_since=_TIME,
        message_stats=TABLE,
        backing_queue_status=TABLE,
        consumer_details={"type": "array", "items": TABLE},
    ),
    "exchanges": fields(
        **_NAMED, type=TEXT, durable=FLAG, auto_delete=FLAG, internal=FLAG, arguments=TABLE
    ),
    "bindings": fields(
        vhost=TEXT,
        source=TEXT,
        destination=TEXT,
        destination_type={"enum": ["queue", "exchange"]},
        routing_key=TEXT,
        arguments=TABLE,
        properties_key=TEXT,
    ),
    "connections": fields(
        **_NAMED, user=TEXT, node=TEXT, state=TEXT, channels=NUMBER, client_properties=TABLE
    ),
    "channels": fields(
        **_NAMED,
        user=TEXT,
        node=TEXT,
        number=NUMBER,
        confirm=FLAG,
        idle_since=_TIME,
        connection_details=TABLE,
    ),
    "consumers": fields(
        consumer_tag=TEXT, queue=TABLE, channel_details=TABLE, ack_required=FLAG, arguments=TABLE
    ),
    "vhosts": fields(name=TEXT, description=TEXT, tags=TEXTS, tracing=FLAG, metadata=TABLE),
    "users": fields(name=TEXT, tags=TEXTS, password_hash=TEXT, limits=TABLE),
    "permissions": fields(user=TEXT, vhost=TEXT, configure=TEXT, write=TEXT, read=TEXT),
    "topic-permissions": fields(user=TEXT, vhost=TEXT, exchange=TEXT, write=TEXT, read=TEXT),
    "policies": _POLICY,
    "operator-policies": _POLICY,
    "parameters": fields(**_NAMED, component=TEXT, value=ANY),
    "global-parameters": fields(name=TEXT, value=ANY),
    "vhost-limits": fields(vhost=TEXT, value=TABLE),
    "user-limits": fields(user=TEXT, value=TABLE),
    "nodes": fields(name=TEXT, type=TEXT, running=FLAG, os_pid=TEXT, uptime=NUMBER),
    "overview": fields(
        rabbitmq_version=TEXT, cluster_name=TEXT, queue_totals=TABLE, object_totals=TABLE
    ),
}

_LIMIT: Final = fields("value", value=_SENT_NUMBER)
_DEFINED: Final = fields("value", value=ANY)
_SET_POLICY: Final = fields(
    "pattern definition",
    pattern=TEXT,
    definition=TABLE,
    priority=_SENT_NUMBER,
    **{"apply-to": TEXT},
)
_BINDING: Final = fields(routing_key=TEXT, arguments=TABLE)
_SHOWN: Final = {"encoding": {"enum": ["auto", "base64"]}, "truncate": _SENT_NUMBER}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 1000}
# By method and path below `/api/`; a body that is not here may be anything, or nothing.
BODIES: Final[dict[str, Schema]] = {
    "PUT cluster-name": fields("name", name=TEXT),
    "PUT exchanges/{vhost}/{exchange}": fields(
        type=TEXT, durable=_SENT_FLAG, auto_delete=_SENT_FLAG, internal=_SENT_FLAG, arguments=TABLE
    ),
    "POST exchanges/{vhost}/{exchange}/publish": fields(
        "properties routing_key payload payload_encoding",
        properties=TABLE,
        routing_key=TEXT,
        payload=TEXT,
        payload_encoding={"enum": ["string", "base64"]},
    ),
    "PUT queues/{vhost}/{queue}": fields(
        durable=_SENT_FLAG, auto_delete=_SENT_FLAG, arguments=TABLE, node=TEXT
    ),
    "POST queues/{vhost}/{queue}/get": fields(
        "count ackmode",
        count=_SENT_NUMBER,
        ackmode={
            "enum": [
                "ack_requeue_true", "ack_requeue_false", "reject_requeue_true",
                "reject_requeue_false",
            ]
        },
        **_SHOWN,
    ),
    "POST queues/{vhost}/{queue}/actions": fields(
        "action", action={"enum": ["sync", "cancel_sync"]}
    ),
    "POST bindings/{vhost}/e/{source}/{kind}/{destination}": _BINDING,
    "PUT vhosts/{vhost}": fields(
        description=TEXT, tags=_SENT_TEXTS, default_queue_type=TEXT, tracing=_SENT_FLAG
    ),
    "PUT vhost-limits/{vhost}/{limit}": _LIMIT,
    "PUT user-limits/{user}/{limit}": _LIMIT,
    "PUT users/{user}": fields(
        "tags", tags=_SENT_TEXTS, password=TEXT, password_hash=TEXT, hashing_algorithm=TEXT
    ),
    "POST users/bulk-delete": fields("users", users=TEXTS),
    "PUT permissions/{vhost}/{user}": fields(
        "configure write read", configure=TEXT, write=TEXT, read=TEXT
    ),
    "PUT topic-permissions/{vhost}/{user}": fields(
        "exchange write read", exchange=TEXT, write=TEXT, read=TEXT
    ),
    "PUT policies/{vhost}/{name}": _SET_POLICY,
    "PUT operator-policies/{vhost}/{name}": _SET_POLICY,
    "PUT parameters/{component}/{vhost}/{name}": _DEFINED,
    "PUT global-parameters/{name}": _DEFINED,
    "POST definitions": TABLE,
    "POST definitions/{vhost}": TABLE,
    "POST warren/jobs": fields("job", job=TEXT, vhost=TEXT, arguments=TABLE),
    "PUT warren/schedules/{vhost}/{name}": fields(
        "job", job=TEXT, arguments=TABLE, cron=TEXT, interval=_SENT_NUMBER, node=TEXT,
        user=TEXT, grace=_SENT_NUMBER, enabled=_SENT_FLAG,
    ),
    "POST warren/storage/compact": fields(
        vhost=TEXT, store={"enum": ["persistent", "transient"]}, node=TEXT
    ),
    "POST warren/queues/{vhost}/{queue}/peek": fields(
        "count", count=_COUNT, start=_SENT_NUMBER, **_SHOWN
    ),
    "POST warren/exchanges/{vhost}/{exchange}/route": fields(routing_key=TEXT, properties=TABLE),
    "POST warren/queues/{vhost}/{queue}/move": fields(
        "count", count=_COUNT, destination=TEXT, exchange=TEXT, routing_key=TEXT
    ),
    "POST warren/queues/{vhost}/{queue}/replay": fields(
        "count", count=_COUNT, to={"enum": ["exchange", "queue"]}
    ),
}  # fmt: skip

ERROR: Final = fields("error reason", error=TEXT, reason={"anyOf": [TEXT, {"type": "array"}]})
CHECK: Final = fields("status", status={"enum": ["ok", "failed"]}, reason=TEXT)
