"""What the API does over AMQP, in the name of its caller: declare, delete, bind, publish, get.

The broker checks rights and arguments there and gives the texts that every client gets; the reply
codes become statuses as in RabbitMQ.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from warrenmq.management.errors import HttpRefusal, bad_request, missing, not_authorised
from warrenmq.management.sessions import Caller, unreachable

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

_ACCESS_REFUSED: Final = 403
_NOT_FOUND: Final = 404


@contextmanager
def channel_of(caller: Caller, vhost: str) -> Iterator["BlockingChannel"]:
    """A channel in the vhost; a refusal of the broker is raised as HttpRefusal."""
    from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

    try:
        with encodable(), caller.amqp(vhost) as channel:
            yield channel
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as error:
        raise _refusal(error.reply_code, error.reply_text) from None
    except AMQPError as error:
        raise unreachable(error) from None


@contextmanager
def encodable() -> Iterator[None]:
    """Raise HttpRefusal for a name or an argument that pika cannot encode."""
    from pika.exceptions import ShortStringTooLong, UnsupportedAMQPFieldException

    try:
        yield
    except ShortStringTooLong:
        raise bad_request("a name has more than 255 bytes") from None
    except UnsupportedAMQPFieldException as error:
        # JSON has fractional numbers, and pika encodes none.
        raise bad_request(f"fractional numbers cannot be sent: {error.args[1]!r}") from None
    except (OverflowError, TypeError, ValueError, struct.error) as error:
        raise bad_request(str(error)) from None


def without_line_ends(name: str) -> str:
    """The name as the broker takes it: it drops CR and LF.

    pika waits for a reply about the name that it sent, and would wait for ever.
    """
    return name.replace("\r", "").replace("\n", "")


def has_queue(channel: "BlockingChannel", name: str) -> bool:
    """Whether a queue exists; asked on a channel of its own, which a refusal closes."""
    from pika.exceptions import ChannelClosedByBroker

    if name != without_line_ends(name):
        return False
    try:
        channel.connection.channel().queue_declare(name, passive=True)
    except ChannelClosedByBroker as error:
        return bool(error.reply_code != _NOT_FOUND)
    return True


def has_exchange(channel: "BlockingChannel", name: str) -> bool:
    """Whether an exchange exists; asked on a channel of its own, which a refusal closes."""
    from pika.exceptions import ChannelClosedByBroker

    try:
        channel.connection.channel().exchange_declare(name, passive=True)
    except ChannelClosedByBroker as error:
        return bool(error.reply_code != _NOT_FOUND)
    return True


def _refusal(code: int, text: str) -> HttpRefusal:
    if code == _ACCESS_REFUSED:
        return not_authorised("Access refused.")
    # "PRECONDITION_FAILED - inequivalent arg ...": the name of the code says nothing new.
    reason = text.partition(" - ")[2] or text
    return missing(reason) if code == _NOT_FOUND else bad_request(reason)
