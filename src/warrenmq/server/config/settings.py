"""`Config`: all settings of a node, parsed and checked."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from warrenmq.server.config.node_name import default_node_name
from warrenmq.server.config.options.cluster import ClusterOptions
from warrenmq.server.config.options.log import LogOptions
from warrenmq.server.config.options.tcp import TcpOptions
from warrenmq.server.config.options.tls import TlsOptions

AMQP_PORT: Final = 5672
SYSTEM_DATA_DIR: Final = "/var/lib/warren"
LOCAL_DATA_DIR: Final = "warren-data"


def default_data_dir() -> Path:
    """`/var/lib/warren` where it is writable (a package created it), else `./warren-data`."""
    if os.access(SYSTEM_DATA_DIR, os.W_OK):
        return Path(SYSTEM_DATA_DIR)
    return Path(LOCAL_DATA_DIR)


@dataclass(frozen=True)
class Config:
    """All settings of a node. Sizes in bytes, times in seconds unless the name says otherwise."""

    data_dir: Path = field(default_factory=default_data_dir)
    node_name: str = field(default_factory=default_node_name)
    # The files that were read, in their order.
    config_files: tuple[Path, ...] = ()
    # (host, port) of the AMQP listeners. Host "" = every address of the machine, IPv4 and IPv6.
    # Port 0 = a free port, printed in the ready line.
    tcp_listeners: tuple[tuple[str, int], ...] = (("", AMQP_PORT),)
    ssl_listeners: tuple[tuple[str, int], ...] = ()
    tls: TlsOptions = field(default_factory=TlsOptions)
    # Every connection to a listener begins with a PROXY header, version 1 or 2.
    proxy_protocol: bool = False
    # From accept to the end of the TLS handshake, and from there to connection.open; 0 = no limit.
    ssl_handshake_timeout_ms: int = 5000
    handshake_timeout_ms: int = 10000
    # Which part of a client's certificate is the user's name for EXTERNAL.
    ssl_cert_login_from: Literal["distinguished_name", "common_name"] = "distinguished_name"
    # SASL mechanisms offered to clients, in this order.
    auth_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    # File, or directory of *.json files, of definitions to import at start.
    load_definitions: Path | None = None
    # Skip the import when the content of `load_definitions` is that of the last import.
    skip_unchanged_definitions: bool = False
    management: str = "off"
    tcp: TcpOptions = field(default_factory=TcpOptions)
    # Connections that the node serves at the same time; -1 = no limit.
    connection_max: int = -1
    # Largest frame (bytes) before connection.tune-ok.
    initial_frame_max: int = 4096
    # Milliseconds in which a delivery must be acked.
    consumer_timeout_ms: int = 1800000
    # Shown to clients; "" = the node's name.
    cluster_name: str = ""
    # File that holds the process id while the node runs.
    pid_file: Path | None = None
    # channel_max, frame_max (bytes) and heartbeat (s) are proposed in connection.tune; 0 = no
    # limit.
    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat: int = 60
    max_message_size: int = 134217728
    # Bytes of unfinished messages that one connection may have; 0 = twice max_message_size.
    max_unfinished_size: int = 0
    # Seconds that a message may stay unfinished; 0 = forever.
    unfinished_message_timeout: int = 60
    # The default user and vhost are created only in an empty data directory.
    default_user: str = "guest"
    default_pass: str = field(default="guest", repr=False)
    default_vhost: str = "/"
    default_user_tags: tuple[str, ...] = ("administrator",)
    # Regular expressions of the default user's permissions in the default vhost.
    default_configure: str = ".*"
    default_write: str = ".*"
    default_read: str = ".*"
    # The algorithm for new passwords, by RabbitMQ's name.
    password_hashing: str = "rabbit_password_hashing_sha256"  # noqa: S105  # the name of an algorithm
    # What a new password must satisfy: a kind of rule, and the argument of that kind.
    credential_validator: str = "rabbit_credential_validator_accept_everything"
    credential_min_length: int = 8
    credential_regexp: str = ""
    # Start with empty definitions when they are lost and a store exists; its messages move to
    # lost+found.
    accept_lost_definitions: bool = False
    # Users that may log in from loopback addresses only.
    loopback_users: frozenset[str] = frozenset({"guest"})
    journal_file_size_limit: int = 67108864
    # The `_absolute` limits are bytes, or -1 = the `_relative` share of all memory applies. All
    # memory is total_memory_available_override_value (bytes), or as much as the machine has when
    # that is 0.
    vm_memory_high_watermark_absolute: int = -1
    vm_memory_high_watermark_relative: float = 0.4
    vm_memory_high_watermark_paging_ratio: float = 0.5
    memory_monitor_interval_ms: int = 2500
    total_memory_available_override_value: int = 0
    disk_free_limit_absolute: int = 50000000
    disk_free_limit_relative: float = 0.0
    queue_index_embed_msgs_below: int = 4096
    msg_store_file_size_limit: int = 16777216
    msg_store_io_batch_size: int = 2048
    log: LogOptions = field(default_factory=LogOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
