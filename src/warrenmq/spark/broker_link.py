"""The connection of a Spark process to the broker, kept over calls and retried while the broker is away.

A broker that is away is waited for up to the option `retryTimeoutMs`, or another one of the user's (retry.py). Every
request of this source may be repeated: reserving, fetching and acking the same range again gives the same result.
"""

import os

from warrenmq.admin.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.protocol import Request
from warrenmq.spark.retry import Retry, is_transient


class BrokerLink:
    """One connection at a time, made when it is needed. `option` is that with the timeout, to be named in errors."""

    def __init__(
        self,
        address: NodeAddress,
        purpose: str,
        retry_timeout_ms: int,
        option: str = "retryTimeoutMs",
    ) -> None:
        self._address = address
        self._purpose = purpose
        self._retry = Retry(address.where, retry_timeout_ms / 1000, option)
        self._client: AdminClient | None = None

    def request(
        self, request: Request, expected: type[ReplyType], wait_s: float = 0.0
    ) -> ReplyType:
        """The broker's reply. AdminRefusedError when it refuses; SourceError when it stays away too long."""
        with self._retry as retry:
            while True:
                try:
                    if self._client is None:
                        retry.attempt()
                        self._client = AdminClient(self._address, self._purpose)
                        retry.connected()
                    return self._client.request(request, expected, wait_s)
                except NodeUnreachableError as error:
                    self._client = None
                    retry.failed(error)
                except AdminRefusedError as error:
                    if not is_transient(error):
                        raise
                    retry.failed(error)


def connect(address: NodeAddress, purpose: str, timeout_s: float, option: str) -> AdminClient:
    """A logged-in client; a broker that is away is waited for. AdminRefusedError when it refuses; SourceError when it stays
    away for longer than `timeout_s`, which the user knows as `option`."""
    with Retry(address.where, timeout_s, option) as retry:
        while True:
            retry.attempt()
            try:
                return AdminClient(address, purpose)
            except NodeUnreachableError as error:
                retry.failed(error)


# Task workers are forked and reused, so a connection serves many tasks; a fork must not share its parent's.
_links: dict[tuple[int, str, str, int], BrokerLink] = {}


def link_to(
    uri: str, purpose: str, retry_timeout_ms: int, option: str = "retryTimeoutMs"
) -> BrokerLink:
    """This process's link to the broker at `uri`; those for one purpose have the same `option`."""
    key = (os.getpid(), uri, purpose, retry_timeout_ms)
    link = _links.get(key)
    if link is None:
        link = BrokerLink(NodeAddress(uri), purpose, retry_timeout_ms, option)
        _links[key] = link
    return link
