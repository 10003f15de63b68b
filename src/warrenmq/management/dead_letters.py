"""Where dead letters came from: the exchange, the keys and the queue of their first death."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from warrenmq.management.amqp import has_exchange
from warrenmq.management.messages import Address

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

EXCHANGE: Final = "exchange"
# Where a dead letter may be sent back to.
PLACES: Final = (EXCHANGE, "queue")
_COPIES: Final = "CC"


@dataclass(frozen=True)
class Origin:
    """The exchange and the routing keys of a message, and the queue in which it died first."""

    exchange: str
    keys: list[str]
    queue: str


def origin_of(headers: Any) -> Origin | None:
    """The origin that a message's headers tell; None if it never died, or a client wrote nonsense.

    The order of the tables in `x-death` does not tell the first death: RabbitMQ changes it.
    """
    if not isinstance(headers, dict) or not isinstance(headers.get("x-death"), list):
        return None
    queue, reason = headers.get("x-first-death-queue"), headers.get("x-first-death-reason")
    for death in headers["x-death"]:
        if isinstance(death, dict) and (death.get("queue"), death.get("reason")) == (queue, reason):
            exchange, keys = death.get("exchange"), death.get("routing-keys")
            texts = [exchange, queue, *(keys if isinstance(keys, list) else [])]
            if len(texts) > 2 and all([isinstance(text, str) for text in texts]):
                return Origin(texts[0], texts[2:], texts[1])
    return None


def address_of_origin(place: str) -> Callable[["BlockingChannel", Any, Any], Address]:
    """What gives the address of a dead letter's origin, for `carry_messages`."""
    known: dict[str, bool] = {"": True}

    def address(channel: "BlockingChannel", _method: Any, properties: Any) -> Address:
        origin = origin_of(properties.headers)
        if origin is None:
            return None
        # The broker sends a copy to each key in this header.
        properties.headers.pop(_COPIES, None)
        if place != EXCHANGE:
            return "", origin.queue
        if origin.exchange not in known:
            known[origin.exchange] = has_exchange(channel, origin.exchange)
        if not known[origin.exchange]:
            return None
        if len(origin.keys) > 1:
            properties.headers[_COPIES] = origin.keys[1:]
        return origin.exchange, origin.keys[0]

    return address
