"""A user as its sessions see it: its tags, its limits, and what it has open."""

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.limits import is_reached
from warrenmq.broker.definitions.metadata import PutUser

IMPERSONATOR: Final = "impersonator"


class Account:
    """One user. A change of the user changes it in place, so that open sessions see it at once.

    A user that is deleted and created again gets a new one.
    """

    def __init__(self, definition: PutUser) -> None:
        self.name: bytes = definition.name
        # Whether the user may set another user's name as the user-id of a message.
        self.is_impersonator: bool = False
        self.connection_count: i64 = 0
        self.channel_count: i64 = 0
        self._max_connections: i64 = 0
        self._max_channels: i64 = 0
        self.define(definition)

    def define(self, definition: PutUser) -> None:
        """Put the user's changed definition in force."""
        self.is_impersonator = IMPERSONATOR in definition.tags
        self._max_connections = definition.max_connections
        self._max_channels = definition.max_channels

    def connection_refusal(self) -> str:
        """Why the user may open no further connection, in RabbitMQ's words; "" = it may."""
        if not is_reached(self._max_connections, self.connection_count):
            return ""
        user = self.name.decode("utf-8", "replace")
        return (
            f"connection refused for user '{user}': user connection limit "
            f"({self._max_connections}) is reached"
        )

    def channel_refusal(self) -> str:
        """Why the user may open no further channel, in RabbitMQ's words; "" = it may."""
        if not is_reached(self._max_channels, self.channel_count):
            return ""
        user = self.name.decode("utf-8", "replace")
        return (
            f"number of channels opened for user '{user}' has reached the maximum allowed user "
            f"limit of ({self._max_channels})"
        )


# The account of a client that has not logged in.
NOBODY: Final = Account(PutUser(b"", b"", "", []))
