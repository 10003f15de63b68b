"""A Spark process's connection to the broker: kept across calls, retried while the broker is away.

The connection retries for as long as the option `retryTimeoutMs`, or another option of the user,
allows (retry.py). Every request of this source may be repeated: to reserve, fetch or ack the same
range again gives the same result.
"""

import os

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.protocol.requests import Request
from warrenmq.spark.retry import Retry, is_transient


class BrokerLink:
    """A connection that the first request opens. Errors name the timeout as `option`.

    `where` names the broker in log lines, unless its address does.
    """

    def __init__(
        self,
        address: NodeAddress,
        purpose: str,
        retry_timeout_ms: int,
        option: str = "retryTimeoutMs",
        where: str = "",
    ) -> None:
        self._address = address
        self._purpose = purpose
        self._retry = Retry(where or address.where, retry_timeout_ms / 1000, option)
        self._client: AdminClient | None = None

    def request(
        self, request: Request, expected: type[ReplyType], wait_s: float = 0.0
    ) -> ReplyType:
        """The broker's reply.

        Raises AdminRefusedError when the broker refuses, SourceError when it stays away too long.
        """
        with self._retry as retry:
            while True:
                try:
                    if self._client is None:
                        retry.attempt()
                        self._client = self._connect()
                        retry.connected()
                    return self._client.request(request, expected, wait_s)
                except NodeUnreachableError as error:
                    self._client = None
                    retry.failed(error)
                except AdminRefusedError as error:
                    if not is_transient(error):
                        raise
                    retry.failed(error)

    def _connect(self) -> AdminClient:
        """A new connection. Raises AdminRefusedError and NodeUnreachableError."""
        return AdminClient(self._address, self._purpose)


def connect(address: NodeAddress, purpose: str, timeout_s: float, option: str) -> AdminClient:
    """A logged-in client; retries while the broker is away, for up to `timeout_s` seconds.

    Raises AdminRefusedError when the broker refuses, and SourceError when the broker stays away for
    longer than `timeout_s`; the error names the timeout as `option`.
    """
    with Retry(address.where, timeout_s, option) as retry:
        while True:
            retry.attempt()
            try:
                return AdminClient(address, purpose)
            except NodeUnreachableError as error:
                retry.failed(error)


# Links by process, URI, purpose and timeout (ms). Spark forks task workers and reuses them: a link
# serves many tasks of one process, and a fork must not use its parent's connection.
_links: dict[tuple[int, str, str, int], BrokerLink] = {}


def link_to(
    uri: str, purpose: str, retry_timeout_ms: int, option: str = "retryTimeoutMs"
) -> BrokerLink:
    """This process's link to the broker at `uri`; calls with one `purpose` pass one `option`."""
    key = (os.getpid(), uri, purpose, retry_timeout_ms)
    link = _links.get(key)
    if link is None:
        link = BrokerLink(NodeAddress(uri), purpose, retry_timeout_ms, option)
        _links[key] = link
    return link
