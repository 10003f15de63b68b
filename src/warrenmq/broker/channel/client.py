"""The client of a connection: its name, its user and its capabilities."""

from __future__ import annotations

from warrenmq.broker.definitions.account import NOBODY, Account
from warrenmq.broker.definitions.rights import NO_RIGHTS, Rights


class Client:
    """The client of a connection; the handshake sets the attributes step by step.

    `name` is the client's name for its connection; `capabilities` are the ones it announced.
    """

    def __init__(self) -> None:
        self.name: str = ""
        self.capabilities: set[str] = set()
        # The body of the table with the client's properties; one frame of the handshake has it, so
        # the largest frame before connection.tune-ok bounds it.
        self.properties: bytes = b""
        # The mechanism of the login, such as PLAIN; "" before it.
        self.mechanism: str = ""
        self.user_name: bytes = b""
        self.account: Account = NOBODY
        # The rights of the user in the vhost of the connection.
        self.rights: Rights = NO_RIGHTS

    def wants_cancel_notices(self) -> bool:
        """Whether the client wants basic.cancel when the broker cancels a consumer."""
        return "consumer_cancel_notify" in self.capabilities

    def wants_blocked_notices(self) -> bool:
        """Whether the client wants connection.blocked when its publishes are deferred."""
        return "connection.blocked" in self.capabilities

    def wants_refusal(self) -> bool:
        """Whether the client wants connection.close when its login is refused."""
        return "authentication_failure_close" in self.capabilities
