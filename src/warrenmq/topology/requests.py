"""One declaration as a call on an AMQP channel, and a broker's refusal of it.

pika's channel and aiormq's, which is aio-pika's, have the same methods with the same parameters.
"""

from dataclasses import dataclass
from typing import Any

from warrenmq.topology.exchanges import Exchange
from warrenmq.topology.queues import Queue
from warrenmq.topology.topology import Declaration


class Refused(Exception):
    """The broker closed the channel or the connection with `code` and `text`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Request:
    """Declares an exchange, a queue or a binding; or asks whether an exchange or queue exists."""

    declaration: Declaration
    is_passive: bool = False

    @property
    def method(self) -> str:
        """The name of the channel's method."""
        declaration = self.declaration
        if isinstance(declaration, Exchange):
            return "exchange_declare"
        if isinstance(declaration, Queue):
            return "queue_declare"
        return f"{declaration.destination_type}_bind"

    @property
    def parameters(self) -> dict[str, Any]:
        """The keyword arguments of the method."""
        declaration = self.declaration
        if isinstance(declaration, Exchange):
            return {
                "exchange": declaration.name,
                "exchange_type": declaration.declared_type,
                "passive": self.is_passive,
                "durable": declaration.durable,
                "auto_delete": declaration.auto_delete,
                "internal": declaration.internal,
                "arguments": declaration.declared_arguments,
            }
        if isinstance(declaration, Queue):
            return {
                "queue": declaration.name,
                "passive": self.is_passive,
                "durable": declaration.durable,
                "exclusive": declaration.exclusive,
                "auto_delete": declaration.auto_delete,
                "arguments": declaration.declared_arguments,
            }
        ends = (
            {"queue": declaration.destination, "exchange": declaration.exchange}
            if declaration.destination_type == "queue"
            else {"destination": declaration.destination, "source": declaration.exchange}
        )
        return {
            **ends,
            "routing_key": declaration.routing_key,
            "arguments": dict(declaration.arguments),
        }
