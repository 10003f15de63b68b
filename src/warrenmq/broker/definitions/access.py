"""The users of a node, their logins and their access to vhosts."""

from __future__ import annotations

from warrenmq.broker.definitions.metadata import Definitions, PutUser
from warrenmq.broker.definitions.passwords import is_password


class Access:
    """The users of a node, by name. `loopback_users` may log in over a loopback address only."""

    def __init__(self, loopback_users: frozenset[bytes]) -> None:
        self.users: dict[bytes, PutUser] = {}
        # Pairs (user, vhost) that have a permission entry.
        self.permissions: set[tuple[bytes, bytes]] = set()
        self._loopback_users: frozenset[bytes] = loopback_users

    def load(self, definitions: Definitions) -> None:
        """Load users and permissions from the stored definitions."""
        for user in definitions.users:
            self.users[user.name] = user
        for permission in definitions.permissions:
            self.permissions.add((permission.user, permission.vhost))

    def authenticate(self, name: bytes, password: bytes, is_loopback: bool) -> PutUser | None:
        """The user `name`, or None for a wrong password or a login that must come over loopback."""
        user = self.users.get(name)
        if user is None or not password:
            return None
        if name in self._loopback_users and not is_loopback:
            return None
        return user if is_password(password, user.password_hash, user.hashing) else None

    def may_enter(self, user_name: bytes, vhost_name: bytes) -> bool:
        """Whether the user has a permission entry for the vhost."""
        return (user_name, vhost_name) in self.permissions
