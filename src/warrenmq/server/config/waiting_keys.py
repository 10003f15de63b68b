"""Keys of RabbitMQ 3.10 that set nothing in warren: accepted, checked where their type is known.

Some wait for a part of warren that comes in a later version. The others are about
Erlang, about RabbitMQ's own store or about plug-ins, and never have an effect.
"""

from collections.abc import Iterator
from typing import Final

from warrenmq.server.config import values
from warrenmq.server.config.key import LATER, NEVER, Key, is_match
from warrenmq.server.config.keys import INTEGER_MAX, SIZE_MAX
from warrenmq.server.config.options.log import CATEGORIES, LEVELS
from warrenmq.server.config.tls_keys import TLS_VERSIONS

_count: Final = values.integer(0, INTEGER_MAX)
_positive: Final = values.integer(1, INTEGER_MAX)
_port: Final = values.integer(0, 65535)
_size: Final = values.size(0, SIZE_MAX)
_log_level: Final = values.one_of(*LEVELS)
_verify: Final = values.one_of("verify_none", "verify_peer")
_none: Final = values.one_of("none")
_on_off: Final = values.one_of("on", "off")

_LATER: Final[dict[str, values.Parser]] = {
    "default_consumer_prefetch": _count,
    "channel_operation_timeout": _positive,
    "queue_leader_locator": values.text,
    "mirroring_sync_batch_size": values.size(1, INTEGER_MAX),
    "mirroring_sync_max_throughput": _size,
    "cluster_partition_handling": values.one_of(
        "ignore", "pause_minority", "autoheal", "pause_if_all_down"
    ),
    "cluster_partition_handling.pause_if_all_down.recover": values.one_of("ignore", "autoheal"),
    "cluster_partition_handling.pause_if_all_down.nodes.*": values.text,
    "cluster_keepalive_interval": _positive,
    "cluster_formation.peer_discovery_backend": values.text,
    "cluster_formation.node_type": values.one_of("disc", "disk", "ram"),
    "cluster_formation.randomized_startup_delay_range.min": _count,
    "cluster_formation.randomized_startup_delay_range.max": _count,
    "cluster_formation.internal_lock_retries": _positive,
    "cluster_formation.lock_retry_limit": _positive,
    "cluster_formation.lock_retry_timeout": _positive,
    "cluster_formation.discovery_retry_limit": _positive,
    "cluster_formation.discovery_retry_interval": _positive,
    "cluster_formation.target_cluster_size_hint": _positive,
    "cluster_formation.classic_config.nodes.*": values.text,
    "cluster_formation.dns.hostname": values.text,
    "collect_statistics": values.one_of("none", "coarse", "fine"),
    "queue_index_max_journal_entries": _positive,
    "classic_queue.default_version": values.one_of("1", "2"),
    "quorum_queue.compute_checksums": values.flag,
    "ssl_cert_login_san_type": values.one_of("dns", "ip", "email", "uri", "other_name"),
    "ssl_cert_login_san_index": _count,
    "ssl_options.dh": values.text,
    "ssl_options.dhfile": values.readable,
    "ssl_options.cert": values.text,
    "ssl_options.cacerts.*": values.text,
    "ssl_options.key.*": values.text,
    "definitions.hashing.algorithm": values.one_of("sha", "sha224", "sha256", "sha384", "sha512"),
    "definitions.https.url": values.text,
    "log.syslog": values.flag,
    "log.syslog.level": _log_level,
    "log.syslog.identity": values.text,
    "log.syslog.facility": values.text,
    "log.syslog.multiline_mode": values.flag,
    "log.syslog.ip": values.ip_address,
    "log.syslog.host": values.text,
    "log.syslog.port": _port,
    "log.syslog.transport": values.one_of("udp", "tcp", "tls", "ssl"),
    "log.syslog.protocol": values.one_of("rfc3164", "rfc5424"),
    "log.exchange": values.flag,
    "log.exchange.level": _log_level,
    "log.journald": values.flag,
    "log.journald.level": _log_level,
    "log.journald.fields": values.text,
    "log.file.rotation.compress": values.flag,
    "management.disable_basic_auth": values.flag,
    "management.enable_uaa": values.flag,
    "management.uaa_client_id": values.text,
    "management.uaa_location": values.text,
    "management.sample_retention_policies.*.*": _count,
    "management_agent.disable_metrics_collector": values.flag,
    "management_agent.filter_aggregated_queue_metrics_pattern": values.text,
    "prometheus.filter_aggregated_queue_metrics_pattern": values.text,
}

_NEVER: Final[dict[str, values.Parser]] = {
    "num_acceptors.tcp": _positive,
    "num_acceptors.ssl": _positive,
    "socket_writer.gc_threshold": values.word_or("off", None, _positive),
    "reverse_dns_lookups": values.flag,
    "erlang.K": values.one_of("true", "false"),
    "hipe_compile": values.flag,
    "delegate_count": _count,
    "default_worker_pool_size": _count,
    "background_gc_enabled": values.flag,
    "background_gc_target_interval": _count,
    "vhost_restart_strategy": values.one_of("stop_node", "continue", "transient", "persistent"),
    "mnesia_table_loading_retry_timeout": _count,
    "mnesia_table_loading_retry_limit": _count,
    "message_store_shutdown_timeout": _positive,
    "msg_store_credit_disc_bound": values.text,
    "credit_flow_default_credit": values.text,
    "net_ticktime": _positive,
    "distribution.listener.port_range.min": _positive,
    "distribution.listener.port_range.max": _positive,
    "distribution.listener.interface": values.ip_address,
    "raft.segment_max_entries": _positive,
    "raft.wal_max_size_bytes": _positive,
    "raft.wal_max_entries": _positive,
    "raft.wal_hibernate_after": _positive,
    "raft.wal_max_batch_size": _positive,
    "raft.snapshot_chunk_size": _positive,
    "raft.data_dir": values.text,
    "sysmon_handler.thresholds.busy_processes": _count,
    "sysmon_handler.thresholds.busy_ports": _count,
    "sysmon_handler.triggers.process.garbage_collection": values.text,
    "sysmon_handler.triggers.process.long_scheduled_execution": values.text,
    "sysmon_handler.triggers.process.heap_size": values.text,
    "sysmon_handler.triggers.port": _on_off,
    "sysmon_handler.triggers.distribution_port": _on_off,
    "product.name": values.text,
    "product.version": values.text,
    "motd_file": values.text,
    "ssl_allow_poodle_attack": values.flag,
    "ssl_options": _none,
    "ssl_options.client_renegotiation": values.flag,
    "ssl_options.honor_ecc_order": values.flag,
    "ssl_options.log_level": _log_level,
    "ssl_options.log_alert": values.flag,
    "ssl_options.psk_identity": values.text,
    "ssl_options.reuse_sessions": values.flag,
    "ssl_options.secure_renegotiate": values.flag,
    "ssl_options.bypass_pem_cache": values.flag,
    "tcp_listen_options": _none,
    "tcp_listen_options.buffer": _count,
    "tcp_listen_options.delay_send": values.flag,
    "tcp_listen_options.dontroute": values.flag,
    "tcp_listen_options.exit_on_close": values.flag,
    "tcp_listen_options.fd": _count,
    "tcp_listen_options.high_msgq_watermark": _count,
    "tcp_listen_options.high_watermark": _count,
    "tcp_listen_options.low_msgq_watermark": _count,
    "tcp_listen_options.low_watermark": _count,
    "tcp_listen_options.port": _port,
    "tcp_listen_options.priority": _count,
    "tcp_listen_options.send_timeout": _count,
    "tcp_listen_options.send_timeout_close": values.flag,
    "tcp_listen_options.tos": _count,
    "log.console.stdio": values.one_of("stdout", "stderr"),
    "log.console.use_colors": _on_off,
    "log.console.color_esc_seqs.*": values.anything,
}

# Keys of Erlang's server of HTTP; a listener has others in `http_keys.py`.
_HTTP: Final[dict[str, values.Parser]] = {
    "inactivity_timeout": _count,
    "shutdown_timeout": _count,
    "max_keepalive": _count,
}
# Keys of Erlang's TLS; a listener has others in `tls_keys.py`.
_ERLANG_TLS: Final[dict[str, values.Parser]] = {
    "honor_ecc_order": values.flag,
    "reuse_sessions": values.flag,
    "secure_renegotiate": values.flag,
    "client_renegotiation": values.flag,
    "cert": values.text,
    "cacerts.*": values.text,
    "key.*": values.text,
    "dh": values.text,
    "dhfile": values.readable,
    "psk_identity": values.text,
    "log_alert": values.flag,
}
# All keys of TLS, for places in which warren has none.
_TLS: Final[dict[str, values.Parser]] = {
    **_ERLANG_TLS,
    "certfile": values.readable,
    "keyfile": values.readable,
    "cacertfile": values.readable,
    "password": values.text,
    "verify": _verify,
    "fail_if_no_peer_cert": values.flag,
    "honor_cipher_order": values.flag,
    "depth": values.integer(0, 255),
    "versions.*": values.one_of(*TLS_VERSIONS),
    "ciphers.*": values.text,
    "crl_check": values.one_of("true", "false", "peer", "best_effort"),
}
_FORMATTER: Final[dict[str, values.Parser]] = {
    "time_format": values.text,
    "level_format": values.one_of("lc", "uc", "lc3", "uc3", "lc4", "uc4"),
    "single_line": _on_off,
    "plaintext.format": values.text,
    "json.field_map": values.text,
    "json.verbosity_map": values.anything,
}
_NEVER_GROUPS: Final[dict[str, dict[str, values.Parser]]] = {
    "management.tcp": _HTTP,
    "management.ssl": {**_HTTP, **_ERLANG_TLS, "backlog": _count},
    "management.listener": {"ssl_opts": _none},
    "management.listener.server": _HTTP,
    "management.listener.ssl_opts": _ERLANG_TLS,
    "prometheus.tcp": _HTTP,
    "prometheus.ssl": {**_HTTP, **_ERLANG_TLS, "backlog": _count},
}
_LATER_GROUPS: Final[dict[str, dict[str, values.Parser]]] = {
    "definitions.tls": {**_TLS, "log_level": _log_level, "reuse_session": values.flag},
    "log.syslog.ssl_options": _TLS,
    "log.console.formatter": _FORMATTER,
    "log.file.formatter": _FORMATTER,
    "log.syslog": {"formatter": values.one_of("plaintext", "json")},
    "log.syslog.formatter": _FORMATTER,
    "log.exchange": {"formatter": values.one_of("plaintext", "json")},
    "log.exchange.formatter": _FORMATTER,
}
_OF_CATEGORY: Final[dict[str, values.Parser]] = {
    "file": values.text,
    "rotation.date": values.text,
    "rotation.compress": values.flag,
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
    for groups, effect in ((_LATER_GROUPS, LATER), (_NEVER_GROUPS, NEVER)):
        for group, keys in groups.items():
            for name, parse in keys.items():
                is_secret = name in ("password", "key.*")
                yield Key(f"{group}.{name}", "", parse, effect, is_secret=is_secret)
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
            return Key(name, "", values.anything, NEVER, is_secret=True)
    return None
