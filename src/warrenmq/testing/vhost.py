"""A vhost for one test on a broker that many tests share: as empty as a broker, and cheaper."""

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from warrenmq.admin.protocol.control import AddVhost, DeleteVhost, Done, SetPermissions
from warrenmq.testing.broker import USER, WarrenBroker

_numbers: Final = itertools.count(1)


@dataclass(frozen=True)
class WarrenVhost:
    """A vhost of `broker` in which the user guest may do everything."""

    broker: WarrenBroker
    name: str

    @property
    def url(self) -> str:
        """The AMQP URL of the vhost, with user and password."""
        return self.broker.vhost_url(self.name)


@contextmanager
def new_vhost(broker: WarrenBroker) -> Iterator[WarrenVhost]:
    """A new vhost of `broker`; deleted at the end with everything in it."""
    vhost = WarrenVhost(broker, f"test-{next(_numbers)}-{secrets.token_hex(3)}")
    broker.admin.request(AddVhost(name=vhost.name), Done)
    every = ".*"
    broker.admin.request(
        SetPermissions(vhost=vhost.name, user=USER, configure=every, write=every, read=every), Done
    )
    try:
        yield vhost
    finally:
        broker.admin.request(DeleteVhost(name=vhost.name), Done)
