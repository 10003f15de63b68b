"""The connection of a Spark process to the broker, kept over calls and retried while the broker is away.

Any exception out of a data source ends the query, and Spark does not restart it. So a broker that restarts, or cannot
store for a moment, is waited for here, up to the option `retryTimeoutMs`, or another one of the user's. Every request of this source may be repeated:
reserving, fetching and acking the same range again gives the same result.
"""

import os
import time
from typing import Final

from warren.admin.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    OtherBrokerError,
    ReplyType,
)
from warren.admin.protocol import STORAGE_FAILED, Request

_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0


class SourceError(RuntimeError):
    """The stream or the read cannot go on; the text says why and what to do, in one line."""


class BrokerAwayError(SourceError):
    """So because of the broker's state, which may pass: the same may be tried again."""


class BrokerLink:
    """One connection at a time, made when it is needed. `option` is that with the timeout, to be named in errors."""

    def __init__(
        self, address: NodeAddress, purpose: str, retry_timeout_ms: int, option: str = "retryTimeoutMs"
    ) -> None:
        self._option = option
        self._address = address
        self._purpose = purpose
        self._retry_timeout_s = retry_timeout_ms / 1000
        self._client: AdminClient | None = None

    def request(self, request: Request, expected: type[ReplyType], wait_s: float = 0.0) -> ReplyType:
        """The broker's reply. AdminRefusedError when it refuses; SourceError when it stays away too long."""
        deadline: float | None = None
        pause_s = _PAUSE_FIRST_S
        while True:
            try:
                if self._client is None:
                    self._client = AdminClient(self._address, self._purpose)
                return self._client.request(request, expected, wait_s)
            except OtherBrokerError as error:
                raise SourceError(
                    f"{error}; for those of another kind there is the option broker=amqp"
                ) from None
            except NodeUnreachableError as error:
                self._client = None
                reason = str(error)
            except AdminRefusedError as error:
                if error.code != STORAGE_FAILED:
                    raise
                reason = error.text
            now = time.monotonic()
            if deadline is None:
                deadline = now + self._retry_timeout_s
            if now + pause_s > deadline:
                raise SourceError(f"given up after {self._retry_timeout_s:g} s ({self._option}): {reason}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)


# Task workers are forked and reused, so a connection serves many tasks; a fork must not share its parent's.
_links: dict[tuple[int, str, str, int], BrokerLink] = {}


def link_to(uri: str, purpose: str, retry_timeout_ms: int, option: str = "retryTimeoutMs") -> BrokerLink:
    """This process's link to the broker at `uri`; those for one purpose have the same `option`."""
    key = (os.getpid(), uri, purpose, retry_timeout_ms)
    link = _links.get(key)
    if link is None:
        link = BrokerLink(NodeAddress(uri), purpose, retry_timeout_ms, option)
        _links[key] = link
    return link
