"""The settings of the broker: limits and names; `server.config` fills them in."""

from warrenmq.broker.definitions.credential_rules import CredentialRules
from warrenmq.broker.definitions.passwords import SHA256


class Settings:
    """The settings of one node. Sizes in bytes, times in seconds unless named _ms; 0 = no limit."""

    def __init__(
        self,
        channel_max: int = 2047,
        frame_max: int = 131072,
        heartbeat: int = 60,
        initial_frame_max: int = 4096,
        handshake_timeout_ms: int = 10000,
        connection_max: int = -1,
        max_message_size: int = 134217728,
        max_unfinished_size: int = 0,
        unfinished_message_timeout: int = 60,
        consumer_timeout_ms: int = 1800000,
        cluster_name: str = "warren@localhost",
        node_name: str = "warren@localhost",
        loopback_users: frozenset[bytes] = frozenset([b"guest"]),
        auth_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN"),
        password_hashing: str = SHA256,
        credential_rules: CredentialRules | None = None,
        total_memory_bytes: int = 1 << 40,
        vm_memory_high_watermark_absolute: int = -1,
        vm_memory_high_watermark_relative: float = 0.4,
        vm_memory_high_watermark_paging_ratio: float = 0.5,
        memory_monitor_interval_ms: int = 2500,
        disk_free_limit_absolute: int = 50000000,
        disk_free_limit_relative: float = 0.0,
        queue_index_embed_msgs_below: int = 4096,
        msg_store_file_size_limit: int = 16777216,
        msg_store_io_batch_size: int = 2048,
    ) -> None:
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat
        # Largest frame before connection.tune-ok.
        self.initial_frame_max = initial_frame_max
        # From the protocol header to connection.open.
        self.handshake_timeout_ms = handshake_timeout_ms
        # Connections at the same time; -1 = no limit.
        self.connection_max = connection_max
        self.max_message_size = max_message_size
        # Bytes of unfinished messages of a connection (arriving bodies and uncommitted publishes);
        # twice the largest message by default.
        self.max_unfinished_size = max_unfinished_size or 2 * max_message_size
        self.unfinished_message_timeout = unfinished_message_timeout
        # From a delivery to its ack.
        self.consumer_timeout_ms = consumer_timeout_ms
        self.cluster_name = cluster_name
        self.node_name = node_name
        self.loopback_users = loopback_users
        # SASL mechanisms for logins; EXTERNAL is offered to clients with TLS only.
        self.auth_mechanisms = auth_mechanisms
        # The algorithm for new passwords, and what they must satisfy.
        self.password_hashing = password_hashing
        self.credential_rules = credential_rules or CredentialRules()
        # The memory limit and the disk limit each have an absolute value in bytes; if that is -1,
        # the limit is the relative value times all memory.
        self.total_memory_bytes = total_memory_bytes
        self.vm_memory_high_watermark_absolute = vm_memory_high_watermark_absolute
        self.vm_memory_high_watermark_relative = vm_memory_high_watermark_relative
        self.vm_memory_high_watermark_paging_ratio = vm_memory_high_watermark_paging_ratio
        self.memory_monitor_interval_ms = memory_monitor_interval_ms
        self.disk_free_limit_absolute = disk_free_limit_absolute
        self.disk_free_limit_relative = disk_free_limit_relative
        # Messages smaller than this (address, properties and body together) are stored in journal
        # and index; the contents of all others go to a content store. 0 = no message is embedded.
        self.queue_index_embed_msgs_below = queue_index_embed_msgs_below
        self.msg_store_file_size_limit = msg_store_file_size_limit
        # Messages that move from RAM to disk, or back, in one step.
        self.msg_store_io_batch_size = msg_store_io_batch_size
