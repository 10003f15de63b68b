"""The user of an admin session: its tags and its rights, looked up at each request."""

from typing import Final

from warrenmq.admin.protocol.control import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER
from warrenmq.broker.definitions.access import Access
from warrenmq.broker.definitions.account import IMPERSONATOR, Account
from warrenmq.broker.definitions.metadata import PutUser
from warrenmq.broker.definitions.rights import NO_RIGHTS, Rights

# Tags that include another one.
_INCLUDED_IN: Final[dict[str, frozenset[str]]] = {
    MANAGEMENT: frozenset({MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR}),
    POLICYMAKER: frozenset({POLICYMAKER, ADMINISTRATOR}),
    MONITORING: frozenset({MONITORING, ADMINISTRATOR}),
    ADMINISTRATOR: frozenset({ADMINISTRATOR}),
}


# A local administrator in events; RabbitMQ calls its command line so.
LOCAL_NAME: Final = b"rmq-cli"


class SessionUser:
    """A logged-in user; `is_local`: it has shown the token of the control file, and may all."""

    def __init__(self, access: Access, name: bytes, is_local: bool) -> None:
        self.name = name
        self.is_local = is_local
        self.account: Account
        if is_local:
            self.account = Account(PutUser(name, b"", "", [IMPERSONATOR]))
        else:
            self.account = access.account(name)
        self._access = access

    @property
    def shown_name(self) -> bytes:
        """The user's name in events."""
        return self.name or LOCAL_NAME

    def has_tag(self, tag: str) -> bool:
        """Whether the user has `tag`, or one that includes it."""
        if self.is_local:
            return True
        user = self._access.users.get(self.name)
        return user is not None and not _INCLUDED_IN.get(tag, frozenset({tag})).isdisjoint(
            user.tags
        )

    @property
    def tags(self) -> list[str]:
        """The user's tags; of a local administrator the one that includes all."""
        if self.is_local:
            return [ADMINISTRATOR]
        user = self._access.users.get(self.name)
        return [] if user is None else list(user.tags)

    def rights(self, vhost: bytes) -> Rights:
        """The user's rights in a vhost."""
        if self.is_local:
            return Rights(self.name, vhost, ".*", ".*", ".*")
        return self._access.rights(self.name, vhost) or NO_RIGHTS

    def may_enter(self, vhost: bytes) -> bool:
        """Whether the user has any permissions in the vhost."""
        return self.is_local or self._access.rights(self.name, vhost) is not None
