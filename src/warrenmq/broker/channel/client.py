"""Who is at the other end of a connection, as far as it has said."""

from __future__ import annotations


class Client:
    """A client; each attribute is set when the handshake has come to it.

    `name` is what it calls its connection, `capabilities` are those it has. `is_impersonator`: it may publish under other
    people's names.
    """

    def __init__(self) -> None:
        self.name: str = ""
        self.capabilities: set[str] = set()
        self.user_name: bytes = b""
        self.is_impersonator: bool = False

    def wants_cancel_notices(self) -> bool:
        """Is it to be told that the broker has cancelled a consumer?"""
        return "consumer_cancel_notify" in self.capabilities

    def wants_blocked_notices(self) -> bool:
        """Is it to be told that its publishes are held back?"""
        return "connection.blocked" in self.capabilities

    def wants_refusal(self) -> bool:
        """Is it to be told that its login was refused?"""
        return "authentication_failure_close" in self.capabilities
