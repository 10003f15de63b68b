"""Requests over an aio-pika connection, each on a channel of our own.

The channel is aiormq's, below aio-pika: a robust connection would repeat the declarations of its
own channels after a reconnect, also those that were refused. This module is loaded when a caller
passes a connection or a channel of aio-pika.
"""

from types import TracebackType
from typing import Final, Self

import aiormq.abc
import aiormq.channel
import aiormq.connection
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelClosed, ConnectionClosed

from warrenmq.topology.requests import Refused, Request

# The reply codes of aiormq's errors that carry only the text.
_CODES: Final[dict[type[Exception], int]] = {
    error: code
    for mapping in (aiormq.channel.EXCEPTION_MAPPING, aiormq.connection.EXCEPTION_MAPPING)
    for code, error in mapping.items()
}


class AioPikaLink:
    """A channel of a connection; an async context manager that closes it, not the connection."""

    def __init__(self, connection: aiormq.abc.AbstractConnection) -> None:
        self._connection = connection
        self._channel: aiormq.abc.AbstractChannel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def ask(self, request: Request) -> str:
        """Carry out `request` and return the name of the queue, or "". Raises Refused."""
        try:
            if self._channel is None:
                self._channel = await self._connection.channel(publisher_confirms=False)
            answer = await getattr(self._channel, request.method)(**request.parameters)
        except (ChannelClosed, ConnectionClosed) as error:
            self._channel = None
            raise _refused(error) from None
        return str(getattr(answer, "queue", ""))


async def link_to(target: AbstractConnection | AbstractChannel) -> AioPikaLink:
    """A link over the connection below `target`; waits while a robust one reconnects.

    Raises ConnectionError if the caller has closed it.
    """
    if isinstance(target, AbstractChannel):
        return AioPikaLink((await target.get_underlay_channel()).connection)
    if not target.is_closed:
        await target.connected.wait()
    if target.transport is None:
        raise ConnectionError("the connection is closed")
    return AioPikaLink(target.transport.connection)


def _refused(error: ChannelClosed | ConnectionClosed) -> Refused:
    code = _CODES.get(type(error))
    if code is None:
        code, text = error.args
    else:
        (text,) = error.args
    return Refused(code, text)
