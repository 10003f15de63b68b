"""Direct exchanges: a message goes where its routing key equals the binding key, byte for byte.

The default exchange (named "") is a direct exchange whose bindings are the queues' names and cannot
be changed.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.wire.field_table import Field

DIRECT: Final = b"direct"


@final
@mypyc_attr(native_class=True)
class DirectExchange(Exchange):
    """A direct exchange: bindings by key."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        super().__init__(name, DIRECT, durable, auto_delete, internal, arguments)
        self._by_key: dict[bytes, dict[Binding, None]] = {}

    def add(self, binding: Binding) -> None:
        bindings = self._by_key.get(binding.key)
        if bindings is None:
            self._by_key[binding.key] = {binding: None}
        else:
            bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        bindings = self._by_key[binding.key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.key]

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        for key in keys:
            bindings = self._by_key.get(key)
            if bindings is not None:
                for binding in bindings:
                    found.append(binding.destination)  # compiled, a loop makes no second list


@final
@mypyc_attr(native_class=True)
class DefaultExchange(Exchange):
    """The exchange named "": routes to the queue that the routing key names.

    Shares the router's `queues`.
    """

    def __init__(self, queues: dict[bytes, Destination]) -> None:
        super().__init__(b"", DIRECT, True, False, False, b"")
        self._queues: dict[bytes, Destination] = queues

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        for key in keys:
            queue = self._queues.get(key)
            if queue is not None:
                found.append(queue)
