"""The users of a node, their logins and their access to vhosts."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.account import Account
from warrenmq.broker.definitions.login_attempts import LoginAttempts
from warrenmq.broker.definitions.login_guard import LoginGuard
from warrenmq.broker.definitions.passwords import SHA256, is_password
from warrenmq.broker.definitions.rights import Rights
from warrenmq.broker.definitions.tickets import Tickets


class Access:
    """The users of a node, by name. `loopback_users` may log in over a loopback address only.

    `on_change(vhost)` is called when rights in a vhost have changed: routes that were found by the
    old ones must be forgotten.
    """

    def __init__(
        self, loopback_users: frozenset[bytes], on_change: Callable[[bytes], None]
    ) -> None:
        self.users: dict[bytes, metadata.PutUser] = {}
        self.loopback_users: frozenset[bytes] = loopback_users
        self.guard: LoginGuard = LoginGuard()
        self.attempts: LoginAttempts = LoginAttempts()
        # None: the node takes none.
        self.tickets: Tickets | None = None
        self._accounts: dict[bytes, Account] = {}
        # Rights by (user, vhost). An entry outlives its permission: open sessions hold it.
        self._rights: dict[tuple[bytes, bytes], Rights] = {}
        # The permissions as they are stored, for listings and exports.
        self._permissions: dict[tuple[bytes, bytes], metadata.PutPermission] = {}
        self._topic_permissions: dict[tuple[bytes, bytes, bytes], metadata.PutTopicPermission] = {}
        self._on_change: Callable[[bytes], None] = on_change

    # -- changes -----------------------------------------------------------------------------------

    def load(self, definitions: metadata.Definitions) -> None:
        """Put the stored users, permissions and topic permissions in force."""
        for user in definitions.users:
            self.apply(user)
        for permission in definitions.permissions:
            self.apply(permission)
        for topic_permission in definitions.topic_permissions:
            self.apply(topic_permission)

    def apply(self, change: metadata.Change) -> None:
        """Put a change of users, permissions or vhosts in force; ignore one of anything else."""
        if isinstance(change, metadata.PutUser):
            self._put_user(change)
        elif isinstance(change, metadata.DeleteUser):
            self.users.pop(change.name, None)
            self._accounts.pop(change.name, None)
            for key in [key for key in self._rights if key[0] == change.name]:
                self._drop(key)
        elif isinstance(change, metadata.PutPermission):
            self._permissions[change.user, change.vhost] = change
            self._entry(change.user, change.vhost).grant(
                change.configure, change.write, change.read
            )
            self._on_change(change.vhost)
        elif isinstance(change, metadata.DeletePermission):
            self._permissions.pop((change.user, change.vhost), None)
            self._entry(change.user, change.vhost).revoke()
            self._on_change(change.vhost)
        elif isinstance(change, metadata.PutTopicPermission):
            self._topic_permissions[change.user, change.vhost, change.exchange] = change
            rights = self._entry(change.user, change.vhost)
            rights.put_topic(change.exchange, change.write, change.read)
            self._on_change(change.vhost)
        elif isinstance(change, metadata.DeleteTopicPermission):
            self._topic_permissions.pop((change.user, change.vhost, change.exchange), None)
            self._entry(change.user, change.vhost).topics.pop(change.exchange, None)
            self._on_change(change.vhost)
        elif isinstance(change, metadata.DeleteVhost):
            for key in [key for key in self._rights if key[1] == change.name]:
                self._drop(key)

    def _put_user(self, user: metadata.PutUser) -> None:
        self.users[user.name] = user
        account = self._accounts.get(user.name)
        if account is None:
            self._accounts[user.name] = Account(user)
        else:
            account.define(user)

    def _entry(self, user_name: bytes, vhost_name: bytes) -> Rights:
        key = (user_name, vhost_name)
        rights = self._rights.get(key)
        if rights is None:
            rights = Rights(user_name, vhost_name, "", "", "")
            rights.revoke()
            self._rights[key] = rights
        return rights

    def _drop(self, key: tuple[bytes, bytes]) -> None:
        self._rights.pop(key).revoke()
        self._permissions.pop(key, None)
        for topic_key in [each for each in self._topic_permissions if each[:2] == key]:
            del self._topic_permissions[topic_key]
        self._on_change(key[1])

    # -- listings ----------------------------------------------------------------------------------

    def permissions(self) -> list[metadata.PutPermission]:
        """The permissions of all users in all vhosts."""
        return list(self._permissions.values())

    def topic_permissions(self) -> list[metadata.PutTopicPermission]:
        """The topic permissions of all users in all vhosts."""
        return list(self._topic_permissions.values())

    # -- logins ------------------------------------------------------------------------------------

    def password_refusal(self, name: bytes, password: bytes, is_loopback: bool) -> str:
        """Why a login with a password is refused, for the log; "" = the user may log in.

        It takes as long for a user that does not exist as for one that does.
        """
        if not self.is_password(name, password):
            if len(password) == 0:
                return f"user '{_shown(name)}' attempted to log in with a blank password"
            return f"user '{_shown(name)}' - invalid credentials"
        return self._loopback_refusal(name, is_loopback)

    def name_refusal(self, name: bytes, is_loopback: bool) -> str:
        """Why a login without a password is refused, as `password_refusal`.

        A certificate has proved the name.
        """
        if name not in self.users:
            return f"user '{_shown(name)}' - invalid credentials"
        return self._loopback_refusal(name, is_loopback)

    def is_password(self, name: bytes, password: bytes) -> bool:
        """Whether `password` is that of the user `name`, or a ticket that holds.

        False for a user that does not exist.
        """
        user = self.users.get(name)
        if user is None:
            return is_password(password, b"", SHA256)
        if is_password(password, user.password_hash, user.hashing):
            return True
        return self.tickets is not None and self.tickets.login_s(password, user) != 0

    def ticket(self, name: bytes, password: bytes) -> bytes:
        """A ticket for the user `name`, whose password or ticket is given.

        Empty if neither holds, or if the login with the password is too long ago.
        """
        user = self.users.get(name)
        if user is None or self.tickets is None:
            return b""
        if is_password(password, user.password_hash, user.hashing):
            return self.tickets.issue(user)
        return self.tickets.exchange(password, user)

    def job_ticket(self, name: bytes) -> bytes:
        """A ticket for a job in the name of a user; empty if it can have none."""
        user = self.users.get(name)
        if user is None or self.tickets is None:
            return b""
        return self.tickets.issue_for_job(user)

    def _loopback_refusal(self, name: bytes, is_loopback: bool) -> str:
        if is_loopback or name not in self.loopback_users:
            return ""
        return f"user '{_shown(name)}' can only connect via localhost"

    # -- users and rights --------------------------------------------------------------------------

    def account(self, name: bytes) -> Account:
        """The user `name` as its sessions see it. Raises KeyError if there is none."""
        return self._accounts[name]

    def rights(self, user_name: bytes, vhost_name: bytes) -> Rights | None:
        """The rights of the user in the vhost; None: it may not enter."""
        rights = self._rights.get((user_name, vhost_name))
        return rights if rights is not None and rights.is_granted else None

    def topic_exchanges(self, user_name: bytes, vhost_name: bytes) -> list[bytes]:
        """Names of the exchanges at which the user has topic permissions."""
        rights = self._rights.get((user_name, vhost_name))
        return [] if rights is None else list(rights.topics)


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "replace")
