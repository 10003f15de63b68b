"""`Config`: all settings of a node, parsed and checked."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from warrenmq.broker.definitions.credential_rules import CredentialRules
from warrenmq.broker.definitions.settings import Settings
from warrenmq.server.config.node_name import default_node_name
from warrenmq.server.config.options.cluster import ClusterOptions
from warrenmq.server.config.options.http_listeners import ManagementOptions, MetricsOptions
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

    # The settings of the broker, except those that `broker_settings` derives from fields below.
    broker: Settings = field(default_factory=Settings)
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
    # From accept to the end of the TLS handshake; 0 = no limit.
    ssl_handshake_timeout_ms: int = 5000
    # Which part of a client's certificate is the user's name for EXTERNAL.
    ssl_cert_login_from: Literal["distinguished_name", "common_name"] = "distinguished_name"
    # File, or directory of *.json files, of definitions to import at start.
    load_definitions: Path | None = None
    # Skip the import when the content of `load_definitions` is that of the last import.
    skip_unchanged_definitions: bool = False
    # The HTTP API and the pages of metrics, which the management process serves.
    management: ManagementOptions = field(default_factory=ManagementOptions)
    prometheus: MetricsOptions = field(default_factory=MetricsOptions)
    tcp: TcpOptions = field(default_factory=TcpOptions)
    # Shown to clients; "" = the name of the cluster that the node belongs to, or else its own.
    cluster_name: str = ""
    # File that holds the process id while the node runs.
    pid_file: Path | None = None
    # Nodes that share the listeners, each a process; 0 = this process is the only node.
    workers: int = 0
    # The default user and vhost are created only in an empty data directory.
    default_user: str = "guest"
    default_pass: str = field(default="guest", repr=False)
    default_vhost: str = "/"
    default_user_tags: tuple[str, ...] = ("administrator",)
    # Regular expressions of the default user's permissions in the default vhost.
    default_configure: str = ".*"
    default_write: str = ".*"
    default_read: str = ".*"
    # The rule for new passwords: its kind, and the argument of that kind.
    credential_validator: str = "rabbit_credential_validator_accept_everything"
    credential_min_length: int = 8
    credential_regexp: str = ""
    # Start with empty definitions when they are lost and a store exists; its messages move to
    # lost+found.
    accept_lost_definitions: bool = False
    # Users that may log in from loopback addresses only.
    loopback_users: frozenset[str] = frozenset({"guest"})
    journal_file_size_limit: int = 67108864
    # All memory (bytes); 0 = as much as the machine has.
    total_memory_available_override_value: int = 0
    log: LogOptions = field(default_factory=LogOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)


def broker_settings(config: Config, machine_memory_bytes: int) -> Settings:
    """The settings of a new broker on a machine with `machine_memory_bytes` of memory."""
    return replace(
        config.broker,
        node_name=config.node_name,
        cluster_name=config.cluster_name or config.cluster.name or config.node_name,
        loopback_users=frozenset(name.encode() for name in config.loopback_users),
        credential_rules=CredentialRules(
            config.credential_validator, config.credential_min_length, config.credential_regexp
        ),
        total_memory_bytes=config.total_memory_available_override_value or machine_memory_bytes,
    )
