"""Checks of what the user of a session may ask for; each raises Refusal."""

from __future__ import annotations

from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.control import ADMINISTRATOR
from warrenmq.admin.session_user import SessionUser
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.rights import QUEUE
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, NO_SUCH_USER, NO_SUCH_VHOST
from warrenmq.vocabulary.names import name_text


class Permits:
    """Checks of what `user` may ask of `broker`."""

    def __init__(self, broker: Broker, user: SessionUser) -> None:
        self.user = user
        self._broker = broker

    def expect_tag(self, tag: str) -> None:
        """Expect that the user has `tag`, unless that is NO_TAG."""
        if tag and not self.user.has_tag(tag):
            raise Refusal(ACCESS_REFUSED, f"the operation is for users with the tag {tag}")

    def expect_user(self, name: str) -> None:
        """Expect that there is a user `name`."""
        if name.encode() not in self._broker.access.users:
            raise Refusal(NO_SUCH_USER, f'User "{name}" does not exist')

    def expect_vhost(self, name: str) -> Vhost:
        """The vhost called `name`, which the user may enter, or any if it is an administrator."""
        vhost = self._broker.vhosts.get(name.encode())
        if not self.user.may_enter(name.encode()) and not self.user.has_tag(ADMINISTRATOR):
            text = f"access to vhost '{name}' refused for user '{name_text(self.user.name)}'"
            raise Refusal(ACCESS_REFUSED, text)
        if vhost is None:
            raise Refusal(NO_SUCH_VHOST, f'Virtual host "{name}" does not exist')
        return vhost

    def expect_configure(self, vhost_name: str, queue: bytes) -> Vhost:
        """The vhost `vhost_name`, in which the user may delete and pause `queue`."""
        vhost = self.expect_vhost(vhost_name)
        refusal = self.user.rights(vhost.name).configure_refusal(QUEUE, queue)
        if refusal:
            raise Refusal(ACCESS_REFUSED, refusal)
        return vhost
