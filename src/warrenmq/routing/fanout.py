"""Fanout exchanges: every message goes to every binding; keys and arguments do not matter."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.wire.field_table import Field

FANOUT: Final = b"fanout"


@final
@mypyc_attr(native_class=True)
class FanoutExchange(Exchange):
    """A fanout exchange. It needs no index beside `outgoing`."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        super().__init__(name, FANOUT, durable, auto_delete, internal, arguments)

    def add(self, binding: Binding) -> None:
        pass

    def remove(self, binding: Binding) -> None:
        pass

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        for binding in self.outgoing.values():
            found.append(binding.destination)  # see direct.py
