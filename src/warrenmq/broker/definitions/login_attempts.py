"""Counts logins: how many were tried, granted and refused, by protocol and by source.

A source is an address with a user's name, as the client gave it. Sources are counted only while
`is_tracking`: their number is up to the clients.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# Protocols, as RabbitMQ names the one that both have.
AMQP: Final = "amqp091"
ADMIN: Final = "admin"
# Sources that are counted. When there are so many, the oldest one is forgotten for a new one.
SOURCES_MAX: Final = 1000


class AttemptCount:
    """Logins that were granted and refused."""

    def __init__(self) -> None:
        self.succeeded: i64 = 0
        self.failed: i64 = 0

    def add(self, is_granted: bool) -> None:
        """Count a login."""
        if is_granted:
            self.succeeded += 1
        else:
            self.failed += 1


class LoginAttempts:
    """The logins of a node since its start or the last `reset`."""

    def __init__(self) -> None:
        # Whether sources are counted; the counts that there are stay when that ends.
        self.is_tracking: bool = False
        self.by_protocol: dict[str, AttemptCount] = {}
        # By address, user's name and protocol; the oldest source is the first one.
        self.by_source: dict[tuple[str, bytes, str], AttemptCount] = {}

    def count(self, protocol: str, address: str, user: bytes, is_granted: bool) -> None:
        """Count a login from `address` with the name `user`."""
        total = self.by_protocol.get(protocol)
        if total is None:
            total = AttemptCount()
            self.by_protocol[protocol] = total
        total.add(is_granted)
        if self.is_tracking:
            self._count_source((address, user, protocol), is_granted)

    def _count_source(self, source: tuple[str, bytes, str], is_granted: bool) -> None:
        count = self.by_source.get(source)
        if count is None:
            if len(self.by_source) >= SOURCES_MAX:
                del self.by_source[next(iter(self.by_source))]
            count = AttemptCount()
            self.by_source[source] = count
        count.add(is_granted)

    def reset(self) -> None:
        """Begin to count anew."""
        self.by_protocol.clear()
        self.by_source.clear()
