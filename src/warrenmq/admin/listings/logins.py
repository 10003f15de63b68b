"""The listings of counted logins: by protocol, and by address and user's name."""

from collections.abc import Iterator
from dataclasses import dataclass

from warrenmq.admin.listings.columns import Columns, ListingOf
from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.login_attempts import AttemptCount
from warrenmq.vocabulary.names import name_text


@dataclass(frozen=True, slots=True)
class ListedAttempts:
    """Logins over `protocol`, or those of one source."""

    protocol: str
    count: AttemptCount
    address: str = ""
    user: bytes = b""


def _by_protocol(broker: Broker, _request: List) -> Iterator[ListedAttempts]:
    counts = broker.access.attempts.by_protocol
    return iter([ListedAttempts(protocol, count) for protocol, count in counts.items()])


def _by_source(broker: Broker, _request: List) -> Iterator[ListedAttempts]:
    counts = broker.access.attempts.by_source
    return iter(
        [
            ListedAttempts(protocol, count, address, user)
            for (address, user, protocol), count in counts.items()
        ]
    )


_SOURCE: Columns[ListedAttempts] = {
    "remote_address": lambda each: each.address,
    "username": lambda each: name_text(each.user),
}
_COUNTS: Columns[ListedAttempts] = {
    "protocol": lambda each: each.protocol,
    "auth_attempts": lambda each: each.count.succeeded + each.count.failed,
    "auth_attempts_failed": lambda each: each.count.failed,
    "auth_attempts_succeeded": lambda each: each.count.succeeded,
}

AUTH_ATTEMPTS = ListingOf(_COUNTS, _by_protocol)
AUTH_ATTEMPTS_BY_SOURCE = ListingOf(_SOURCE | _COUNTS, _by_source)
