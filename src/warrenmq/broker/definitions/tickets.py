"""Tickets: passwords for a short time, so that a program can act for a user without the password.

A ticket is bound to the hash of the user's password: it ends with a new password and with the user.
Nothing is stored. All nodes of a cluster have the same key, and take each other's tickets.
"""

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Final

_PREFIX: Final = b"ticket"
_KEY_BYTES: Final = 32
# A ticket serves for so long (s), and may be exchanged for a new one meanwhile ...
TICKET_S: Final = 900
# ... until so long after the login with the password (s).
LOGIN_S: Final = 12 * 3600
# Keeps a ticket's key apart from other uses of the cluster's secret.
_PURPOSE: Final = b"warren tickets"


class Tickets:
    """Makes and checks the tickets of a node. `random_bytes` makes its key at the first ticket."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes: Callable[[int], bytes] = random_bytes
        self._key: bytes = b""

    def share(self, secret: bytes) -> None:
        """Use the key that all nodes with `secret` use."""
        self._key = hmac.digest(secret, _PURPOSE, "sha256")

    def issue(self, user: bytes, password_hash: bytes, login_s: int, now_s: int) -> bytes:
        """A ticket of a user who has shown the password at `login_s`; Unix times in s.

        Empty when that login is too long ago.
        """
        end_s = min(now_s + TICKET_S, login_s + LOGIN_S)
        if end_s <= now_s:
            return b""
        if not self._key:
            self._key = self._random_bytes(_KEY_BYTES)
        return b":".join(
            [
                _PREFIX,
                b"%d" % login_s,
                b"%d" % end_s,
                self._proof(user, password_hash, login_s, end_s),
            ]
        )

    def login_of(self, ticket: bytes, user: bytes, password_hash: bytes, now_s: int) -> int:
        """When the user of a ticket has shown the password (Unix time in s); 0: it does not hold."""
        prefix, _, rest = ticket.partition(b":")
        login, _, rest = rest.partition(b":")
        end, _, proof = rest.partition(b":")
        if prefix != _PREFIX or not self._key or not password_hash:
            return 0
        # Unix times of this millennium's clocks have at most 11 digits.
        if not (login.isdigit() and end.isdigit() and len(login) < 12 and len(end) < 12):
            return 0
        login_s, end_s = int(login), int(end)
        expected = self._proof(user, password_hash, login_s, end_s)
        return login_s if hmac.compare_digest(proof, expected) and now_s < end_s else 0

    def _proof(self, user: bytes, password_hash: bytes, login_s: int, end_s: int) -> bytes:
        text = b"%d:%d:%d:%b%b" % (login_s, end_s, len(user), user, password_hash)
        return hashlib.sha256(hmac.digest(self._key, text, "sha256")).hexdigest().encode()


def unix_s() -> int:
    """The time by the clock that all nodes show their users (s)."""
    return int(time.time())
