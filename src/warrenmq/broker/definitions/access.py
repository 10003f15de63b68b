"""The users of a node, their logins and their access to vhosts."""

from __future__ import annotations

from warrenmq.broker.definitions.metadata import Definitions, PutUser
from warrenmq.broker.definitions.passwords import is_password
from warrenmq.broker.definitions.rights import Rights


class Access:
    """The users of a node, by name. `loopback_users` may log in over a loopback address only."""

    def __init__(self, loopback_users: frozenset[bytes]) -> None:
        self.users: dict[bytes, PutUser] = {}
        # By (user, vhost). A user without an entry may not enter the vhost.
        self._rights: dict[tuple[bytes, bytes], Rights] = {}
        self.loopback_users: frozenset[bytes] = loopback_users

    def load(self, definitions: Definitions) -> None:
        """Load users and permissions from the stored definitions."""
        for user in definitions.users:
            self.users[user.name] = user
        for permission in definitions.permissions:
            self._rights[permission.user, permission.vhost] = Rights(
                permission.user,
                permission.vhost,
                permission.configure,
                permission.write,
                permission.read,
            )

    def authenticate(self, name: bytes, password: bytes, is_loopback: bool) -> PutUser | None:
        """The user `name`, or None for a wrong password or a login that must come over loopback."""
        user = self.users.get(name)
        if user is None or not password:
            return None
        if name in self.loopback_users and not is_loopback:
            return None
        return user if is_password(password, user.password_hash, user.hashing) else None

    def rights(self, user_name: bytes, vhost_name: bytes) -> Rights | None:
        """The rights of the user in the vhost; None: it may not enter."""
        return self._rights.get((user_name, vhost_name))
