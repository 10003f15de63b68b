"""Bindings: from an exchange to a queue or another exchange.

A binding is told from others by source, destination, key and arguments; the arguments count with their types but not
in their order (protocol.md 5.3). `binding_identity` is that comparison as a dictionary key.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, final
from urllib.parse import quote_plus

from mypy_extensions import mypyc_attr

from warren.routing.destination import Destination
from warren.wire.field_table import Field, decode_table, encode_table
from warren.wire.field_types import TAG_LONG, TAG_LONG_TOO

if TYPE_CHECKING:
    from warren.routing.exchange import Exchange


@final
@mypyc_attr(native_class=True)
class Binding:
    """One binding. `arguments` is the table body as it was sent."""

    def __init__(self, source: Exchange, destination: Destination, key: bytes, arguments: bytes) -> None:
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
        return key + "~" + base64.urlsafe_b64encode(checksum.to_bytes(4, "big")).decode().rstrip("=")


def binding_identity(
    destination: Destination, key: bytes, arguments: bytes
) -> tuple[bool, bytes, bytes, bytes]:
    """What tells a binding from the others of the same source."""
    return destination.is_queue, destination.name, key, canonical_arguments(arguments)


def canonical_arguments(arguments: bytes) -> bytes:
    """The same bytes for the same arguments in any order."""
    if not arguments:
        return b""
    table = decode_table(arguments)
    ordered: dict[str, Field] = {}
    for name in sorted(table):
        field = table[name]
        # Two tags of one and the same type: RabbitMQ reads L as l.
        ordered[name] = Field(TAG_LONG, field.value) if field.tag == TAG_LONG_TOO else field
    return encode_table(ordered)
