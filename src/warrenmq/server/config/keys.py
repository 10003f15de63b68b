"""The keys that set a field of `Config`: how a value is read and when a change takes effect.

`waiting_keys.py` holds the keys that are only checked; it is loaded when a key is not found here.
"""

from typing import Final

from warrenmq.server.config.http_keys import HTTP_KEYS
from warrenmq.server.config.key import (
    CONNECT,
    FIRST_START,
    RELOAD,
    RESTART,
    Key,
    chosen,
    chosen_set,
    in_order,
    pairs,
)
from warrenmq.server.config.node_name import node_name
from warrenmq.server.config.options.cluster import etcd_urls
from warrenmq.server.config.options.log import CATEGORIES, LEVELS
from warrenmq.server.config.options.rotation import rotation_date
from warrenmq.server.config.tls_keys import tls_keys
from warrenmq.server.config.values import (
    Parser,
    address,
    flag,
    integer,
    number,
    one_of,
    only,
    path,
    readable,
    regular_expression,
    size,
    text,
    word_or,
)

# RabbitMQ's ceiling for max_message_size: a body must fit in one Erlang binary without hurting the
# collector.
MAX_MESSAGE_SIZE_LIMIT: Final = 536870912
# Smallest frame_max that a peer must accept (AMQP 0-9-1 section 4.2.3).
FRAME_MIN_SIZE: Final = 4096
# Smallest max_unfinished_size: room for messages that are unfinished for a moment only, such as a
# small one that arrives in two reads.
UNFINISHED_SIZE_MIN: Final = 1048576
# Smallest journal file: it holds at least one full group-commit buffer (1 MiB).
JOURNAL_FILE_SIZE_MIN: Final = 1048576
# Smallest file of a content store; smaller ones would be mostly names and headers.
CONTENT_FILE_SIZE_MIN: Final = 65536
# Largest queue_index_embed_msgs_below; larger messages gain nothing from lying in the index.
EMBED_MAX: Final = 1048576
# Entries of one segment of a queue's index. Existing files depend on it, so the setting cannot
# change it.
SEGMENT_ENTRIES: Final = 16384
# Upper bounds of settings that are mere limits: nothing of that size must fit anywhere.
SIZE_MAX: Final = 2**60
INTEGER_MAX: Final = 2**31 - 1

# Most nodes of one supervisor: more than any machine has cores.
WORKERS_MAX: Final = 1024

# Spellings of one setting: the definitions that a start imports.
DEFINITIONS_KEYS: Final = (
    "load_definitions",
    "definitions.local.path",
    "management.load_definitions",
)
PASSWORD_HASHINGS: Final = ("rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512")
CREDENTIAL_VALIDATORS: Final = (
    "rabbit_credential_validator_accept_everything",
    "rabbit_credential_validator_min_password_length",
    "rabbit_credential_validator_password_regexp",
)
MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "EXTERNAL")

_log_level: Final = one_of(*LEVELS)
_frame_size: Final = size(FRAME_MIN_SIZE, INTEGER_MAX)
_frame_max: Final = word_or("0", 0, _frame_size)
_milliseconds: Final = integer(1, INTEGER_MAX)
_no_listener: Final = only("none", (), "expected none, or a key with a name: .NAME = HOST:PORT")
_no_loopback_user: Final = only("none", frozenset(), "expected none, or loopback_users.NAME = true")
_only_rss: Final = only(
    "rss", None, "only rss is available (what the system counts before it kills)"
)
# RabbitMQ has two names for the node's own users and permissions.
_only_internal: Final = word_or(
    "rabbit_auth_backend_internal", None, only("internal", None, "only internal is available")
)
_segment_entries: Final = only(
    str(SEGMENT_ENTRIES), None, f"a segment of the index has {SEGMENT_ENTRIES} entries"
)
_local_import: Final = only("local_filesystem", None, "only local_filesystem is available")


_locator: Final = one_of("client-local", "min-masters", "random")


def _socket_buffer() -> Parser:
    return size(0, INTEGER_MAX)


_NODE: Final = (
    Key("data_dir", "data_dir", path, RESTART),
    Key("node_name", "node_name", node_name, RESTART),
    Key("pid_file", "pid_file", path, RESTART),
    Key("workers", "workers", integer(0, WORKERS_MAX), RESTART),
    Key("cluster_name", "cluster_name", text, CONNECT),
    *(
        Key(
            name,
            "load_definitions",
            readable,
            RESTART,
            overrides=tuple(other for other in DEFINITIONS_KEYS if other != name),
        )
        for name in DEFINITIONS_KEYS
    ),
    Key("definitions.import_backend", "", _local_import, RESTART),
    Key("definitions.skip_if_unchanged", "skip_unchanged_definitions", flag, RESTART),
    Key("accept_lost_definitions", "accept_lost_definitions", flag, RESTART),
)

_CLUSTER: Final = (
    Key("cluster.name", "cluster.name", text, RESTART),
    Key("cluster.etcd", "cluster.etcd", etcd_urls, RESTART),
    Key("cluster.etcd.username", "cluster.etcd_username", text, RESTART),
    Key("cluster.etcd.password", "cluster.etcd_password", text, RESTART, is_secret=True),
    Key("cluster.etcd.cacertfile", "cluster.etcd_cacertfile", readable, RESTART),
    Key("cluster.etcd.certfile", "cluster.etcd_certfile", readable, RESTART),
    Key("cluster.etcd.keyfile", "cluster.etcd_keyfile", readable, RESTART),
    Key("cluster.listen", "cluster.listen", address, RESTART),
    Key("cluster.advertise", "cluster.advertise", address, RESTART),
    Key("cluster.secret", "cluster.secret", text, RESTART, is_secret=True),
    Key("cluster.ssl_options.cacertfile", "cluster.cacertfile", readable, RESTART),
    Key("cluster.ssl_options.certfile", "cluster.certfile", readable, RESTART),
    Key("cluster.ssl_options.keyfile", "cluster.keyfile", readable, RESTART),
    Key("queue_master_locator", "cluster.locator", _locator, RESTART),
)

_LISTENERS: Final = (
    Key("listeners.tcp", "tcp_listeners", _no_listener, RESTART),
    Key(
        "listeners.tcp.*",
        "tcp_listeners",
        address,
        RESTART,
        collect=in_order,
        members={"default": ("", 5672)},
    ),
    Key("listeners.ssl", "ssl_listeners", _no_listener, RESTART),
    Key("listeners.ssl.*", "ssl_listeners", address, RESTART, collect=in_order),
    Key("proxy_protocol", "proxy_protocol", flag, RESTART),
    Key("tcp_listen_options.backlog", "tcp.backlog", integer(1, 65535), RESTART),
    Key("tcp_listen_options.nodelay", "tcp.nodelay", flag, RESTART),
    Key("tcp_listen_options.keepalive", "tcp.keepalive", flag, RESTART),
    Key("tcp_listen_options.sndbuf", "tcp.sndbuf", _socket_buffer(), RESTART),
    Key("tcp_listen_options.recbuf", "tcp.recbuf", _socket_buffer(), RESTART),
    Key("tcp_listen_options.linger.on", "tcp.linger", flag, RESTART),
    Key("tcp_listen_options.linger.timeout", "tcp.linger_timeout_s", integer(0, 65535), RESTART),
    *tls_keys("ssl_options", "tls", CONNECT),
    Key("ssl_handshake_timeout", "ssl_handshake_timeout_ms", _milliseconds, CONNECT),
)

_CONNECTIONS: Final = (
    Key(
        "handshake_timeout",
        "broker.handshake_timeout_ms",
        word_or("infinity", 0, _milliseconds),
        CONNECT,
    ),
    Key(
        "connection_max",
        "broker.connection_max",
        word_or("infinity", -1, integer(0, INTEGER_MAX)),
        RELOAD,
    ),
    Key("channel_max", "broker.channel_max", integer(0, 65535), CONNECT),
    Key("frame_max", "broker.frame_max", _frame_max, CONNECT),
    Key("initial_frame_max", "broker.initial_frame_max", _frame_size, CONNECT),
    Key("heartbeat", "broker.heartbeat", integer(0, 65535), CONNECT),
    Key("max_message_size", "broker.max_message_size", size(1, MAX_MESSAGE_SIZE_LIMIT), CONNECT),
    Key(
        "max_unfinished_size",
        "broker.max_unfinished_size",
        size(UNFINISHED_SIZE_MIN, SIZE_MAX),
        RESTART,
    ),
    Key(
        "unfinished_message_timeout",
        "broker.unfinished_message_timeout",
        integer(0, 86400),
        CONNECT,
    ),
    Key(
        "consumer_timeout",
        "broker.consumer_timeout_ms",
        word_or("undefined", SIZE_MAX, _milliseconds),
        RELOAD,
    ),
    Key(
        "auth_mechanisms.*",
        "broker.auth_mechanisms",
        one_of(*MECHANISMS),
        CONNECT,
        collect=in_order,
        members={"1": "PLAIN", "2": "AMQPLAIN"},
    ),
    Key("auth_backends.*", "", _only_internal, RESTART),
    Key("auth_backends.*.authn", "", _only_internal, RESTART),
    Key("auth_backends.*.authz", "", _only_internal, RESTART),
    Key(
        "ssl_cert_login_from",
        "ssl_cert_login_from",
        one_of("distinguished_name", "common_name"),
        CONNECT,
    ),
)

_USERS: Final = (
    Key("default_user", "default_user", text, FIRST_START),
    Key("default_pass", "default_pass", text, FIRST_START, is_secret=True),
    Key("default_vhost", "default_vhost", text, FIRST_START),
    Key(
        "default_user_tags.*",
        "default_user_tags",
        flag,
        FIRST_START,
        collect=chosen,
        members={"administrator": True},
    ),
    Key("default_permissions.configure", "default_configure", regular_expression, FIRST_START),
    Key("default_permissions.write", "default_write", regular_expression, FIRST_START),
    Key("default_permissions.read", "default_read", regular_expression, FIRST_START),
    Key("loopback_users", "loopback_users", _no_loopback_user, CONNECT),
    Key(
        "loopback_users.*",
        "loopback_users",
        flag,
        CONNECT,
        collect=chosen_set,
        members={"guest": True},
    ),
    Key("password_hashing_module", "broker.password_hashing", one_of(*PASSWORD_HASHINGS), RELOAD),
    Key(
        "credential_validator.validation_backend",
        "credential_validator",
        one_of(*CREDENTIAL_VALIDATORS),
        RELOAD,
    ),
    Key("credential_validator.min_length", "credential_min_length", integer(0, 255), RELOAD),
    Key("credential_validator.regexp", "credential_regexp", regular_expression, RELOAD),
)

_LIMITS: Final = (
    Key(
        "vm_memory_high_watermark.relative",
        "broker.vm_memory_high_watermark_relative",
        number(0, 1),
        RELOAD,
        overrides=("vm_memory_high_watermark.absolute",),
        implies={"broker.vm_memory_high_watermark_absolute": -1},
    ),
    Key(
        "vm_memory_high_watermark.absolute",
        "broker.vm_memory_high_watermark_absolute",
        size(0, SIZE_MAX),
        RELOAD,
        overrides=("vm_memory_high_watermark.relative",),
    ),
    Key(
        "vm_memory_high_watermark_paging_ratio",
        "broker.vm_memory_high_watermark_paging_ratio",
        number(0, 1000),
        RESTART,
    ),
    Key("vm_memory_calculation_strategy", "", _only_rss, RESTART),
    Key(
        "memory_monitor_interval",
        "broker.memory_monitor_interval_ms",
        integer(100, 3600000),
        RESTART,
    ),
    Key(
        "total_memory_available_override_value",
        "total_memory_available_override_value",
        size(1048576, SIZE_MAX),
        RESTART,
    ),
    Key(
        "disk_free_limit.relative",
        "broker.disk_free_limit_relative",
        number(0, 1000),
        RELOAD,
        overrides=("disk_free_limit.absolute",),
        implies={"broker.disk_free_limit_absolute": -1},
    ),
    Key(
        "disk_free_limit.absolute",
        "broker.disk_free_limit_absolute",
        size(0, SIZE_MAX),
        RELOAD,
        overrides=("disk_free_limit.relative",),
    ),
)

_STORE: Final = (
    Key(
        "journal_file_size_limit",
        "journal_file_size_limit",
        size(JOURNAL_FILE_SIZE_MIN, INTEGER_MAX),
        RESTART,
    ),
    Key(
        "queue_index_embed_msgs_below",
        "broker.queue_index_embed_msgs_below",
        size(0, EMBED_MAX),
        RESTART,
    ),
    Key("queue_index_segment_entry_count", "", _segment_entries, RESTART),
    Key(
        "msg_store_file_size_limit",
        "broker.msg_store_file_size_limit",
        size(CONTENT_FILE_SIZE_MIN, INTEGER_MAX),
        RESTART,
    ),
    Key("msg_store_io_batch_size", "broker.msg_store_io_batch_size", integer(1, 65536), RESTART),
)

_LOG: Final = (
    Key("log.console", "log.console", flag, RELOAD),
    Key("log.console.level", "log.console_level", _log_level, RELOAD),
    Key("log.console.formatter", "log.console_formatter", one_of("plaintext", "json"), RELOAD),
    Key("log.file", "log.file", word_or("false", None, path), RELOAD),
    Key("log.file.level", "log.file_level", _log_level, RELOAD),
    Key("log.file.formatter", "log.file_formatter", one_of("plaintext", "json"), RELOAD),
    Key("log.dir", "log.directory", path, RELOAD),
    Key("log.file.rotation.size", "log.rotation_size", size(0, SIZE_MAX), RELOAD),
    Key("log.file.rotation.date", "log.rotation_date", rotation_date, RELOAD),
    Key("log.file.rotation.count", "log.rotation_count", integer(0, 10000), RELOAD),
    *(
        Key(
            f"log.{category}.level",
            "log.levels",
            _log_level,
            RELOAD,
            collect=pairs,
            member=category,
        )
        for category in CATEGORIES
    ),
)

# By the section of the page of the configuration that explains them.
SECTIONS: Final = {
    "The node": _NODE,
    "The HTTP API and metrics": HTTP_KEYS,
    "The cluster": _CLUSTER,
    "Listeners": _LISTENERS,
    "Connections": _CONNECTIONS,
    "Users": _USERS,
    "Memory and disk": _LIMITS,
    "The store": _STORE,
    "The log": _LOG,
}
ALL: Final = tuple([key for keys in SECTIONS.values() for key in keys])
# By name; a pattern is found under its name too, but only `find_key` tries patterns.
BY_NAME: Final = {key.name: key for key in ALL}
PATTERNS: Final = tuple(key for key in ALL if "*" in key.name)
