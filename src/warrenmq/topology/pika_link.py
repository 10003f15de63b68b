"""Requests over a pika connection, each on a channel of our own.

A refused request closes its channel; the caller's channels stay open. This module is loaded when a
caller passes a connection of pika, or a URL.
"""

from types import TracebackType
from typing import Final, Self

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from warrenmq.admin.client.client import NodeAddress
from warrenmq.topology.requests import Refused, Request

_CONNECT_TIMEOUT_S: Final = 10.0


class PikaLink:
    """A channel of a blocking connection; a context manager that closes it, not the connection."""

    def __init__(self, connection: pika.BlockingConnection) -> None:
        self._connection = connection
        self._channel: BlockingChannel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def ask(self, request: Request) -> str:
        """Carry out `request` and return the name of the queue, or "". Raises Refused."""
        try:
            if self._channel is None:
                self._channel = self._connection.channel()
            answer = getattr(self._channel, request.method)(**request.parameters)
        except (
            pika.exceptions.ChannelClosedByBroker,
            pika.exceptions.ConnectionClosedByBroker,
        ) as error:
            self._channel = None
            raise Refused(error.reply_code, error.reply_text) from None
        return str(getattr(answer.method, "queue", ""))


def connect(uri: str) -> pika.BlockingConnection:
    """A connection to the broker at `uri`.

    Raises ValueError for a malformed URI or an unusable file of its parameters, and
    ConnectionError, whose text has no password.
    """
    address = NodeAddress(uri)
    tls = None
    if address.tls is not None:
        server_name = address.tls.server_name or address.host
        tls = pika.SSLOptions(address.tls.ssl_context(), server_name)
    parameters = pika.ConnectionParameters(
        address.host,
        address.port,
        address.vhost,
        pika.PlainCredentials(address.user, address.password),
        ssl_options=tls,
        socket_timeout=_CONNECT_TIMEOUT_S,
    )
    try:
        return pika.BlockingConnection(parameters)
    except (pika.exceptions.AMQPError, OSError) as error:
        raise ConnectionError(f"no connection to {address.where}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """The text of the innermost error: pika wraps errors in errors that say less."""
    nested = [*error.args, getattr(error, "exception", None)]
    for inner in nested:
        if isinstance(inner, BaseException):
            return _reason(inner)
    return str(error) or type(error).__name__
