"""Keys of RabbitMQ 3.10 that set nothing in warren: accepted, checked where their type is known.

Some wait for a part of warren that comes in a later version (management, metrics, mirrors); the
others are about Erlang, about RabbitMQ's own store or about plug-ins, and never have an effect.
"""

from collections.abc import Iterator
from typing import Final

from warrenmq.server.config.key import LATER, NEVER, Key, is_match
from warrenmq.server.config.keys import INTEGER_MAX, SIZE_MAX, TLS_VERSIONS
from warrenmq.server.config.options.log import CATEGORIES, LEVELS
from warrenmq.server.config.values import (
    Parser,
    anything,
    flag,
    integer,
    ip_address,
    one_of,
    readable,
    size,
    text,
    word_or,
)

_count: Final = integer(0, INTEGER_MAX)
_positive: Final = integer(1, INTEGER_MAX)
_port: Final = integer(0, 65535)
_size: Final = size(0, SIZE_MAX)
_log_level: Final = one_of(*LEVELS)
_verify: Final = one_of("verify_none", "verify_peer")
_none: Final = one_of("none")
_on_off: Final = one_of("on", "off")

_LATER: Final[dict[str, Parser]] = {
    "default_consumer_prefetch": _count,
    "channel_operation_timeout": _positive,
    "queue_leader_locator": text,
    "mirroring_sync_batch_size": size(1, INTEGER_MAX),
    "mirroring_sync_max_throughput": _size,
    "cluster_partition_handling": one_of(
        "ignore", "pause_minority", "autoheal", "pause_if_all_down"
    ),
    "cluster_partition_handling.pause_if_all_down.recover": one_of("ignore", "autoheal"),
    "cluster_partition_handling.pause_if_all_down.nodes.*": text,
    "cluster_keepalive_interval": _positive,
    "cluster_formation.peer_discovery_backend": text,
    "cluster_formation.node_type": one_of("disc", "disk", "ram"),
    "cluster_formation.randomized_startup_delay_range.min": _count,
    "cluster_formation.randomized_startup_delay_range.max": _count,
    "cluster_formation.internal_lock_retries": _positive,
    "cluster_formation.lock_retry_limit": _positive,
    "cluster_formation.lock_retry_timeout": _positive,
    "cluster_formation.discovery_retry_limit": _positive,
    "cluster_formation.discovery_retry_interval": _positive,
    "cluster_formation.target_cluster_size_hint": _positive,
    "cluster_formation.classic_config.nodes.*": text,
    "cluster_formation.dns.hostname": text,
    "collect_statistics": one_of("none", "coarse", "fine"),
    "collect_statistics_interval": _positive,
    "queue_index_max_journal_entries": _positive,
    "classic_queue.default_version": one_of("1", "2"),
    "quorum_queue.compute_checksums": flag,
    "ssl_cert_login_san_type": one_of("dns", "ip", "email", "uri", "other_name"),
    "ssl_cert_login_san_index": _count,
    "ssl_options.dh": text,
    "ssl_options.dhfile": readable,
    "ssl_options.cert": text,
    "ssl_options.cacerts.*": text,
    "ssl_options.key.*": text,
    "definitions.hashing.algorithm": one_of("sha", "sha224", "sha256", "sha384", "sha512"),
    "definitions.https.url": text,
    "log.syslog": flag,
    "log.syslog.level": _log_level,
    "log.syslog.identity": text,
    "log.syslog.facility": text,
    "log.syslog.multiline_mode": flag,
    "log.syslog.ip": ip_address,
    "log.syslog.host": text,
    "log.syslog.port": _port,
    "log.syslog.transport": one_of("udp", "tcp", "tls", "ssl"),
    "log.syslog.protocol": one_of("rfc3164", "rfc5424"),
    "log.exchange": flag,
    "log.exchange.level": _log_level,
    "log.journald": flag,
    "log.journald.level": _log_level,
    "log.journald.fields": text,
    "log.file.rotation.compress": flag,
    "management.http_log_dir": text,
    "management.http.max_body_size": _count,
    "management.path_prefix": text,
    "management.login_session_timeout": _count,
    "management.db_cache_multiplier": _count,
    "management.cors.allow_origins": _none,
    "management.cors.allow_origins.*": text,
    "management.cors.max_age": _count,
    "management.csp.policy": text,
    "management.hsts.policy": text,
    "management.headers.content_type_options": text,
    "management.headers.xss_protection": text,
    "management.headers.frame_options": text,
    "management.disable_basic_auth": flag,
    "management.disable_stats": flag,
    "management.enable_queue_totals": flag,
    "management.enable_uaa": flag,
    "management.uaa_client_id": text,
    "management.uaa_location": text,
    "management.rates_mode": one_of("basic", "detailed", "none"),
    "management.sample_retention_policies.*.*": _count,
    "management_agent.disable_metrics_collector": flag,
    "management_agent.filter_aggregated_queue_metrics_pattern": text,
    "prometheus.return_per_object_metrics": flag,
    "prometheus.path": text,
    "prometheus.filter_aggregated_queue_metrics_pattern": text,
}

_NEVER: Final[dict[str, Parser]] = {
    "num_acceptors.tcp": _positive,
    "num_acceptors.ssl": _positive,
    "socket_writer.gc_threshold": word_or("off", None, _positive),
    "reverse_dns_lookups": flag,
    "erlang.K": one_of("true", "false"),
    "hipe_compile": flag,
    "delegate_count": _count,
    "default_worker_pool_size": _count,
    "background_gc_enabled": flag,
    "background_gc_target_interval": _count,
    "vhost_restart_strategy": one_of("stop_node", "continue", "transient", "persistent"),
    "mnesia_table_loading_retry_timeout": _count,
    "mnesia_table_loading_retry_limit": _count,
    "message_store_shutdown_timeout": _positive,
    "msg_store_credit_disc_bound": text,
    "credit_flow_default_credit": text,
    "net_ticktime": _positive,
    "distribution.listener.port_range.min": _positive,
    "distribution.listener.port_range.max": _positive,
    "distribution.listener.interface": ip_address,
    "raft.segment_max_entries": _positive,
    "raft.wal_max_size_bytes": _positive,
    "raft.wal_max_entries": _positive,
    "raft.wal_hibernate_after": _positive,
    "raft.wal_max_batch_size": _positive,
    "raft.snapshot_chunk_size": _positive,
    "raft.data_dir": text,
    "sysmon_handler.thresholds.busy_processes": _count,
    "sysmon_handler.thresholds.busy_ports": _count,
    "sysmon_handler.triggers.process.garbage_collection": text,
    "sysmon_handler.triggers.process.long_scheduled_execution": text,
    "sysmon_handler.triggers.process.heap_size": text,
    "sysmon_handler.triggers.port": _on_off,
    "sysmon_handler.triggers.distribution_port": _on_off,
    "product.name": text,
    "product.version": text,
    "motd_file": text,
    "ssl_allow_poodle_attack": flag,
    "ssl_options": _none,
    "ssl_options.client_renegotiation": flag,
    "ssl_options.honor_ecc_order": flag,
    "ssl_options.log_level": _log_level,
    "ssl_options.log_alert": flag,
    "ssl_options.psk_identity": text,
    "ssl_options.reuse_sessions": flag,
    "ssl_options.secure_renegotiate": flag,
    "ssl_options.bypass_pem_cache": flag,
    "tcp_listen_options": _none,
    "tcp_listen_options.buffer": _count,
    "tcp_listen_options.delay_send": flag,
    "tcp_listen_options.dontroute": flag,
    "tcp_listen_options.exit_on_close": flag,
    "tcp_listen_options.fd": _count,
    "tcp_listen_options.high_msgq_watermark": _count,
    "tcp_listen_options.high_watermark": _count,
    "tcp_listen_options.low_msgq_watermark": _count,
    "tcp_listen_options.low_watermark": _count,
    "tcp_listen_options.port": _port,
    "tcp_listen_options.priority": _count,
    "tcp_listen_options.send_timeout": _count,
    "tcp_listen_options.send_timeout_close": flag,
    "tcp_listen_options.tos": _count,
    "log.console.stdio": one_of("stdout", "stderr"),
    "log.console.use_colors": _on_off,
    "log.console.color_esc_seqs.*": anything,
}

# Of the listeners of management and metrics, and of the other places where TLS options stand.
_HTTP: Final[dict[str, Parser]] = {
    "port": _port,
    "ip": ip_address,
    "compress": flag,
    "idle_timeout": _count,
    "inactivity_timeout": _count,
    "request_timeout": _count,
    "shutdown_timeout": _count,
    "max_keepalive": _count,
}
_TLS: Final[dict[str, Parser]] = {
    "certfile": readable,
    "keyfile": readable,
    "cacertfile": readable,
    "password": text,
    "verify": _verify,
    "fail_if_no_peer_cert": flag,
    "honor_cipher_order": flag,
    "honor_ecc_order": flag,
    "reuse_sessions": flag,
    "secure_renegotiate": flag,
    "client_renegotiation": flag,
    "depth": integer(0, 255),
    "versions.*": one_of(*TLS_VERSIONS),
    "ciphers.*": text,
    "crl_check": one_of("true", "false", "peer", "best_effort"),
    "cert": text,
    "cacerts.*": text,
    "key.*": text,
    "dh": text,
    "dhfile": readable,
    "psk_identity": text,
    "log_alert": flag,
}
_FORMATTER: Final[dict[str, Parser]] = {
    "time_format": text,
    "level_format": one_of("lc", "uc", "lc3", "uc3", "lc4", "uc4"),
    "single_line": _on_off,
    "plaintext.format": text,
    "json.field_map": text,
    "json.verbosity_map": anything,
}
_GROUPS: Final[dict[str, dict[str, Parser]]] = {
    "management.tcp": _HTTP,
    "management.ssl": {**_HTTP, **_TLS, "backlog": _count},
    "management.listener": {"port": _port, "ip": ip_address, "ssl": flag, "ssl_opts": _none},
    "management.listener.server": _HTTP,
    "management.listener.ssl_opts": _TLS,
    "prometheus.tcp": _HTTP,
    "prometheus.ssl": {**_HTTP, **_TLS, "backlog": _count},
    "definitions.tls": {**_TLS, "log_level": _log_level, "reuse_session": flag},
    "log.syslog.ssl_options": _TLS,
    "log.console.formatter": _FORMATTER,
    "log.file.formatter": _FORMATTER,
    "log.syslog": {"formatter": one_of("plaintext", "json")},
    "log.syslog.formatter": _FORMATTER,
    "log.exchange": {"formatter": one_of("plaintext", "json")},
    "log.exchange.formatter": _FORMATTER,
}
_OF_CATEGORY: Final[dict[str, Parser]] = {
    "file": text,
    "rotation.date": text,
    "rotation.compress": flag,
    "rotation.size": _size,
    "rotation.count": _count,
}

# Keys of plug-ins that warren does not have; RabbitMQ reads them only where the plug-in is enabled,
# so their types are not checked.
PLUGINS: Final = (
    "amqp1_0",
    "auth_cache",
    "auth_http",
    "auth_ldap",
    "auth_oauth2",
    "aws",
    "cluster_formation.aws",
    "cluster_formation.consul",
    "cluster_formation.etcd",
    "cluster_formation.k8s",
    "cluster_formation.node_cleanup",
    "cluster_formation.proxy",
    "event_exchange",
    "mqtt",
    "stomp",
    "stream",
    "trust_store",
    "web_mqtt",
    "web_stomp",
)


def _all() -> Iterator[Key]:
    for name, parse in _LATER.items():
        yield Key(name, "", parse, LATER, is_secret=name == "ssl_options.key.*")
    for name, parse in _NEVER.items():
        yield Key(name, "", parse, NEVER)
    for group, keys in _GROUPS.items():
        for name, parse in keys.items():
            yield Key(f"{group}.{name}", "", parse, LATER, is_secret=name in ("password", "key.*"))
    for category in CATEGORIES:
        for name, parse in _OF_CATEGORY.items():
            yield Key(f"log.{category}.{name}", "", parse, LATER)


WAITING: Final = tuple(_all())
_BY_NAME: Final = {key.name: key for key in WAITING}


def find_waiting(name: str, parts: list[str]) -> Key | None:
    """The key `name`, whose parts are `parts`, if it is one that sets nothing."""
    key = _BY_NAME.get(name)
    if key is not None and "*" not in name:
        return key
    for key in WAITING:
        if "*" in key.name and is_match(key.name, parts):
            return key
    for plugin in PLUGINS:
        if name.startswith(f"{plugin}.") and parts[-1] != "":
            # Passwords and tokens of plug-ins have many names, so no value is shown.
            return Key(name, "", anything, NEVER, is_secret=True)
    return None
