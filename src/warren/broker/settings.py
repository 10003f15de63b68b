"""Limits and names the broker works with; `server.config` fills them in."""


class Settings:
    """Sizes in bytes, times in seconds unless named otherwise; 0 = no limit."""

    def __init__(
        self,
        channel_max: int = 2047,
        frame_max: int = 131072,
        heartbeat: int = 60,
        max_message_size: int = 134217728,
        cluster_name: str = "warren@localhost",
        loopback_users: frozenset[bytes] = frozenset([b"guest"]),
    ) -> None:
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat
        self.max_message_size = max_message_size
        self.cluster_name = cluster_name
        self.loopback_users = loopback_users
