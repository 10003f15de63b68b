"""The client of a connection: its name, its user and its capabilities."""

from __future__ import annotations

from warrenmq.broker.definitions.account import NOBODY, Account
from warrenmq.broker.definitions.rights import NO_RIGHTS, Rights


class Client:
    """The client of a connection; the handshake sets the attributes step by step.

    `name` is the client's name for its connection. The `wants_...` are the capabilities that it
    announced: basic.cancel when the broker cancels a consumer, connection.blocked when its
    publishes are deferred, and connection.close when its login is refused.
    """

    def __init__(self) -> None:
        self.name: str = ""
        self.wants_cancel_notices: bool = False
        self.wants_blocked_notices: bool = False
        self.wants_refusal: bool = False
        # The body of the table with the client's properties; one frame of the handshake has it, so
        # the largest frame before connection.tune-ok bounds it.
        self.properties: bytes = b""
        # The mechanism of the login, such as PLAIN; "" before it.
        self.mechanism: str = ""
        self.user_name: bytes = b""
        self.account: Account = NOBODY
        # The rights of the user in the vhost of the connection.
        self.rights: Rights = NO_RIGHTS
