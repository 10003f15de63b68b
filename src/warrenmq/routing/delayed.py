"""Delayed exchanges: a message with the header `x-delay` waits before it is routed.

The argument `x-delayed-type` names another type, by whose rules the exchange routes. The router
reports a message that has to wait (`Router.route`); whoever publishes keeps it, and routes it again
when its time has come.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field, decode_table

DELAYED: Final = b"x-delayed-message"
X_DELAYED_TYPE: Final = "x-delayed-type"


@final
@mypyc_attr(native_class=True)
class DelayedExchange(Exchange):
    """A delayed exchange that routes as `inner`, an exchange of the same name and arguments."""

    def __init__(self, inner: Exchange) -> None:
        super().__init__(
            inner.name, DELAYED, inner.durable, inner.auto_delete, inner.internal, inner.arguments
        )
        self.inner: Exchange = inner
        inner.outgoing = self.outgoing
        self.reads = inner.reads
        self.draws_one = inner.draws_one
        self.is_delayed = True
        self.is_by_keys = False

    def check_binding(self, key: bytes, arguments: bytes) -> None:
        self.inner.check_binding(key, arguments)

    def check_room(self, key: bytes) -> None:
        self.inner.check_room(key)

    def add(self, binding: Binding) -> None:
        self.inner.add(binding)

    def remove(self, binding: Binding) -> None:
        self.inner.remove(binding)

    def on_replaced(self, old: Destination, new: Destination) -> None:
        self.inner.on_replaced(old, new)

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        self.inner.match(keys, fields, found)
        self.tried = self.inner.tried


def delayed_type(arguments: bytes) -> bytes:
    """The type that `x-delayed-type` names, which may be unknown.

    Raises ChannelException 406 if the argument is absent, no text, or names this type again.
    """
    field = decode_table(arguments).get(X_DELAYED_TYPE)
    value = None if field is None else field.value
    if not isinstance(value, bytes):
        raise ChannelException(
            PRECONDITION_FAILED,
            "Invalid argument, 'x-delayed-type' must be an existing exchange type",
        )
    if value == DELAYED:
        raise ChannelException(
            PRECONDITION_FAILED,
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        )
    return value
