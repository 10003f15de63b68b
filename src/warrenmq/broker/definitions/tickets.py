"""Tickets: passwords for a short time, so that a program can act for a user without the password.

A ticket is bound to the hash of the user's password: it ends with a new password and with the user.
Nothing is stored. All nodes of a cluster have the same key, and take each other's tickets.
"""

import hmac
from collections.abc import Callable
from typing import Final

from warrenmq.broker.definitions.metadata import PutUser

_PREFIX: Final = b"ticket"
_KEY_BYTES: Final = 32
# A ticket serves for so long (s), and may be exchanged for a new one meanwhile ...
TICKET_S: Final = 900
# ... until so long after the login with the password (s).
LOGIN_S: Final = 12 * 3600
# A ticket of a job holds for so long (s).
JOB_S: Final = 7 * 86400
# Keeps a ticket's key apart from other uses of the cluster's secret.
_PURPOSE: Final = b"warren tickets"


class Tickets:
    """Makes and checks the tickets of a node.

    `random_bytes` makes its key at the first ticket, `unix_s` tells the Unix time in s.
    """

    def __init__(self, random_bytes: Callable[[int], bytes], unix_s: Callable[[], int]) -> None:
        self._random_bytes: Callable[[int], bytes] = random_bytes
        self._unix_s: Callable[[], int] = unix_s
        self._key: bytes = b""
        # Tickets of this key hold as well; b"": none do.
        self._previous_key: bytes = b""

    def share(self, secret: bytes, previous: bytes = b"") -> None:
        """Use the key that all nodes with `secret` use.

        Tickets of nodes that use the secret `previous` hold as well, unless it is b"".
        """
        self._key = hmac.digest(secret, _PURPOSE, "sha256")
        self._previous_key = hmac.digest(previous, _PURPOSE, "sha256") if previous else b""

    def issue(self, user: PutUser) -> bytes:
        """A ticket of a user who shows the password now."""
        now_s = self._unix_s()
        return self._issue(user, now_s, now_s + TICKET_S)

    def issue_for_job(self, user: PutUser) -> bytes:
        """A ticket for a job in the name of a user; empty for a user without a password."""
        now_s = self._unix_s()
        return self._issue(user, now_s, now_s + JOB_S)

    def exchange(self, ticket: bytes, user: PutUser) -> bytes:
        """A new ticket for one that holds; empty if it does not, or if its login is too old."""
        login_s = self.login_s(ticket, user)
        end_s = min(self._unix_s() + TICKET_S, login_s + LOGIN_S)
        return self._issue(user, login_s, end_s) if login_s else b""

    def login_s(self, ticket: bytes, user: PutUser) -> int:
        """When the user has shown the password (Unix time in s); 0: the ticket does not hold."""
        prefix, _, rest = ticket.partition(b":")
        login, _, rest = rest.partition(b":")
        end, _, proof = rest.partition(b":")
        if prefix != _PREFIX or not self._key or not user.password_hash:
            return 0
        # The times of this millennium have at most 11 digits.
        if not (login.isdigit() and end.isdigit() and len(login) < 12 and len(end) < 12):
            return 0
        login_s, end_s = int(login), int(end)
        is_own = hmac.compare_digest(proof, self._proof(self._key, user, login_s, end_s))
        if not is_own and self._previous_key:
            earlier = self._proof(self._previous_key, user, login_s, end_s)
            is_own = hmac.compare_digest(proof, earlier)
        return login_s if is_own and self._unix_s() < end_s else 0

    def _issue(self, user: PutUser, login_s: int, end_s: int) -> bytes:
        if end_s <= self._unix_s() or not user.password_hash:
            return b""
        if not self._key:
            self._key = self._random_bytes(_KEY_BYTES)
        proof = self._proof(self._key, user, login_s, end_s)
        return b":".join([_PREFIX, b"%d" % login_s, b"%d" % end_s, proof])

    def _proof(self, key: bytes, user: PutUser, login_s: int, end_s: int) -> bytes:
        head = b"%d:%d:%d:" % (login_s, end_s, len(user.name))
        text = head + user.name + user.password_hash
        return hmac.digest(key, text, "sha256").hex().encode()
