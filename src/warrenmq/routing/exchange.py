"""Exchanges, their bindings, and the destinations of bindings.

Source, destination, key and arguments identify a binding (`binding_identity`). Each exchange type
is a subclass that keeps an index of its bindings. An index may find a destination several times for
one message; the router takes each once.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final, final
from urllib.parse import quote_plus

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.binding_arguments import canonical_arguments
from warrenmq.routing.message_fields import READS_NOTHING
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR

ALTERNATE_EXCHANGE: Final = "alternate-exchange"


@mypyc_attr(allow_interpreted_subclasses=True)
class Destination:
    """The destination of a binding: a queue or an exchange of one vhost.

    Queues live in a layer above and extend this class. `durable`: the definition survives a
    restart. `incoming` and `route_mark` belong to the vhost's Router.
    """

    def __init__(self, name: bytes, is_queue: bool) -> None:
        self.name: bytes = name
        self.is_queue: bool = is_queue
        self.durable: bool = False
        # Bindings to this destination, in the order they were made; a set would not keep it.
        self.incoming: dict[Binding, None] = {}
        # Number of the last routing that met this destination; saves a set per message.
        self.route_mark: i64 = 0


@final
@mypyc_attr(native_class=True)
class Binding:
    """One binding. `arguments`: the table body as it was sent."""

    def __init__(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> None:
        self.source: Exchange = source
        self.destination: Destination = destination
        self.key: bytes = key
        self.arguments: bytes = arguments

    def is_durable(self) -> bool:
        """Whether both ends are durable; only then is the binding stored."""
        return self.source.durable and self.destination.durable

    def properties_key(self) -> str:
        """The name of the binding in the HTTP API, among those from `source` to `destination`."""
        key = quote_plus(self.key).replace("~", "%7E")
        if not self.arguments:
            return key if key else "~"
        checksum = zlib.crc32(canonical_arguments(self.arguments))
        return (
            key + "~" + base64.urlsafe_b64encode(checksum.to_bytes(4, "big")).decode().rstrip("=")
        )


@mypyc_attr(native_class=True)
class Exchange(Destination):
    """One exchange; the class of each type defines `add`, `remove` and `match`.

    `arguments`: the table body of its declaration; `type`: b"direct", b"fanout" ...
    """

    def __init__(
        self,
        name: bytes,
        type: bytes,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: bytes,
    ) -> None:
        super().__init__(name, False)
        self.durable = durable
        self.type: bytes = type
        self.auto_delete: bool = auto_delete
        self.internal: bool = internal
        self.arguments: bytes = arguments
        # The alternate exchange that the arguments name.
        self.declared_alternate: bytes | None = _alternate(arguments)
        # Name of the exchange for messages that match nothing here; it need not exist. A policy may
        # have named it. Changed by the router only.
        self.alternate: bytes | None = self.declared_alternate
        # Bindings with this exchange as source, by `binding_identity`; changed by the router only.
        self.outgoing: dict[tuple[bool, bytes, bytes, bytes], Binding] = {}
        # Number of outgoing bindings that lead to another exchange.
        self.exchange_binding_count: int = 0
        # Whether messages with the same routing keys always match the same bindings here.
        self.is_by_keys: bool = True
        # The parts of a message that `match` reads beside the keys; see `message_fields.py`.
        self.reads: i64 = READS_NOTHING
        # Whether a message goes along one of the bindings that `match` finds, drawn by chance.
        self.draws_one: bool = False
        # Whether a message with the header `x-delay` waits before it is matched.
        self.is_delayed: bool = False
        # Work of all matches so far, in tries: a try takes a tenth of a microsecond or so. Types
        # that look their bindings up by the key do not count.
        self.tried: i64 = 0
        # Distinguishes the exchange from all others that its vhost has had since the node's start.
        self.number: i64 = 0
        # Publishes of this node's clients to this exchange, and queues that they were routed to,
        # through other exchanges too: RabbitMQ's publish_in and publish_out.
        self.publish_in: i64 = 0
        self.publish_out: i64 = 0

    def check_binding(self, key: bytes, arguments: bytes) -> None:
        """Raise ChannelException 406 if this type cannot take a binding of this kind."""

    def check_room(self, key: bytes) -> None:
        """Raise ChannelException 406 if the index has no room for another binding with this key."""

    def add(self, binding: Binding) -> None:
        """Add a binding, which is in `outgoing` already, to the index."""
        raise NotImplementedError

    def remove(self, binding: Binding) -> None:
        """Remove a binding from the index."""
        raise NotImplementedError

    def on_replaced(self, old: Destination, new: Destination) -> None:
        """Note that the bindings to `old` now lead to `new`, which has the same name."""

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        """Append the destinations of a message with these `keys` and `fields`.

        The keys are all different, the message's own one first. The fields are what `reads` says.
        """
        raise NotImplementedError


def binding_identity(
    destination: Destination, key: bytes, arguments: bytes
) -> tuple[bool, bytes, bytes, bytes]:
    """The key that identifies a binding among those of the same source."""
    return destination.is_queue, destination.name, key, canonical_arguments(arguments)


def _alternate(arguments: bytes) -> bytes | None:
    field = decode_table(arguments).get(ALTERNATE_EXCHANGE) if arguments else None
    if field is not None and field.tag == TAG_LONGSTR and isinstance(field.value, bytes):
        return field.value
    return None
