"""Random exchanges: each message goes along one binding, drawn by chance; keys do not matter.

A destination that is bound twice has two chances.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.wire.field_table import Field

RANDOM: Final = b"x-random"


@final
@mypyc_attr(native_class=True)
class RandomExchange(Exchange):
    """A random exchange. It offers the destinations of all bindings; the router draws one."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        super().__init__(name, RANDOM, durable, auto_delete, internal, arguments)
        self.draws_one = True
        self.is_by_keys = False

    def add(self, binding: Binding) -> None:
        pass

    def remove(self, binding: Binding) -> None:
        pass

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        for binding in self.outgoing.values():
            found.append(binding.destination)  # see direct.py
