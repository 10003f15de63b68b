"""The settings of the broker: limits and names; `server.config` fills them in."""

from dataclasses import dataclass, field

from warrenmq.broker.definitions.credential_rules import CredentialRules
from warrenmq.broker.definitions.passwords import SHA256


@dataclass
class Settings:
    """The settings of one node. Sizes in bytes, times in seconds unless named _ms; 0 = no limit."""

    # channel_max, frame_max and heartbeat are proposed in connection.tune.
    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat: int = 60
    # Largest frame before connection.tune-ok.
    initial_frame_max: int = 4096
    # From the protocol header, or the end of the TLS handshake, to connection.open.
    handshake_timeout_ms: int = 10000
    # Connections that the node serves at the same time; -1 = no limit.
    connection_max: int = -1
    max_message_size: int = 134217728
    # Bytes of unfinished messages that one connection may have (arriving bodies and uncommitted
    # publishes); 0 = twice max_message_size.
    max_unfinished_size: int = 0
    # Seconds that a message may stay unfinished.
    unfinished_message_timeout: int = 60
    # From a delivery to its ack.
    consumer_timeout_ms: int = 1800000
    cluster_name: str = "warren@localhost"
    node_name: str = "warren@localhost"
    # Users that may log in from loopback addresses only.
    loopback_users: frozenset[bytes] = frozenset([b"guest"])
    # SASL mechanisms for logins, in this order; EXTERNAL is offered to clients with TLS only.
    auth_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    # RabbitMQ's name of the algorithm that hashes new passwords.
    password_hashing: str = SHA256
    # Rules that a new password must satisfy.
    credential_rules: CredentialRules = field(default_factory=CredentialRules)
    # The memory limit and the disk limit each have an absolute value in bytes; if that is -1, the
    # limit is the relative value times all memory.
    total_memory_bytes: int = 1 << 40
    vm_memory_high_watermark_absolute: int = -1
    vm_memory_high_watermark_relative: float = 0.4
    vm_memory_high_watermark_paging_ratio: float = 0.5
    memory_monitor_interval_ms: int = 2500
    disk_free_limit_absolute: int = 50000000
    disk_free_limit_relative: float = 0.0
    # Messages smaller than this (address, properties and body together) are stored in journal and
    # index; the contents of all others go to a content store. 0 = no message is embedded.
    queue_index_embed_msgs_below: int = 4096
    msg_store_file_size_limit: int = 16777216
    # Messages that move from RAM to disk, or back, in one step.
    msg_store_io_batch_size: int = 2048
