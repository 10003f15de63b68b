"""An exchange: its attributes, its bindings, and what its type must answer.

Each type is a subclass that keeps an index of its bindings. A destination may be found several times in one message:
the router takes each once, so that the indexes need not care.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from warren.routing.binding import Binding
from warren.routing.destination import Destination
from warren.wire.field_table import Field, decode_table
from warren.wire.field_types import TAG_LONGSTR

ALTERNATE_EXCHANGE: Final = "alternate-exchange"


@mypyc_attr(native_class=True)
class Exchange(Destination):
    """One exchange. `arguments` is the table body of its declaration; `type` is b"direct", b"fanout" ..."""

    def __init__(
        self, name: bytes, type: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
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


def _alternate(arguments: bytes) -> bytes | None:
    field = decode_table(arguments).get(ALTERNATE_EXCHANGE) if arguments else None
    if field is not None and field.tag == TAG_LONGSTR and isinstance(field.value, bytes):
        return field.value
    return None
