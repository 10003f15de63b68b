"""Exchanges, their bindings, and what these lead to.

A binding is told from others by source, destination, key and arguments (`binding_identity`). Each type of exchange is a
subclass that keeps an index of its bindings. A destination may be found several times in one message: the router takes
each once, so that the indexes need not care.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final, final
from urllib.parse import quote_plus

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.binding_arguments import canonical_arguments
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR

ALTERNATE_EXCHANGE: Final = "alternate-exchange"


@mypyc_attr(allow_interpreted_subclasses=True)
class Destination:
    """What a binding can lead to: a queue or an exchange of one vhost. Queues live in a layer above this one and extend it.

    `durable`: does its definition survive a restart?

    `incoming` and `route_mark` belong to the vhost's Router.
    """

    def __init__(self, name: bytes, is_queue: bool) -> None:
        self.name: bytes = name
        self.is_queue: bool = is_queue
        self.durable: bool = False
        # Bindings that lead here, in the order they were made (a dict keeps it; a set does not).
        self.incoming: dict[Binding, None] = {}
        # Number of the last routing that met this destination: tells "once already" without a set per message.
        self.route_mark: i64 = 0


@final
@mypyc_attr(native_class=True)
class Binding:
    """One binding. `arguments` is the table body as it was sent."""

    def __init__(
        self, source: Exchange, destination: Destination, key: bytes, arguments: bytes
    ) -> None:
        self.source: Exchange = source
        self.destination: Destination = destination
        self.key: bytes = key
        self.arguments: bytes = arguments

    def is_durable(self) -> bool:
        """Both ends are: only then is the binding stored."""
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
    """One exchange. `arguments` is the table body of its declaration; `type` is b"direct", b"fanout" ..."""

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
        # Where messages go that match nothing here; it need not exist.
        self.alternate: bytes | None = _alternate(arguments)
        # Bindings with this exchange as source, by `binding_identity`; changed by the router only.
        self.outgoing: dict[tuple[bool, bytes, bytes, bytes], Binding] = {}
        # How many of them lead to another exchange.
        self.exchange_binding_count: int = 0

    def check_binding(self, arguments: bytes) -> None:
        """ChannelException 406 if this type cannot take a binding with these arguments."""

    def check_room(self, key: bytes) -> None:
        """ChannelException 406 if the index has no room for another binding with this key."""

    def add(self, binding: Binding) -> None:
        """Index a binding that is in `outgoing` now."""
        raise NotImplementedError

    def remove(self, binding: Binding) -> None:
        """Take a binding out of the index."""
        raise NotImplementedError

    def match(self, keys: list[bytes], headers: dict[str, Field], found: list[Destination]) -> None:
        """Append the destinations that a message with these routing keys (all different) and these headers goes to."""
        raise NotImplementedError


def binding_identity(
    destination: Destination, key: bytes, arguments: bytes
) -> tuple[bool, bytes, bytes, bytes]:
    """What tells a binding from the others of the same source."""
    return destination.is_queue, destination.name, key, canonical_arguments(arguments)


def _alternate(arguments: bytes) -> bytes | None:
    field = decode_table(arguments).get(ALTERNATE_EXCHANGE) if arguments else None
    if field is not None and field.tag == TAG_LONGSTR and isinstance(field.value, bytes):
        return field.value
    return None
