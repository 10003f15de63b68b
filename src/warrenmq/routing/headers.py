"""Headers exchanges: match a binding's arguments with a message's headers, not its routing key.

A publish tries every binding, and of each binding its arguments until one decides. It costs at most
one comparison for each argument of the exchange's bindings.

`x-match` selects the mode (protocol 6): `all` (also when absent) wants every argument met, `any`
at least one. Arguments that begin with `x-` take part only in `all-with-x` and `any-with-x`;
`x-match` itself never does. An argument is met by a header of the same name with an equal value
(`field_values.py`), a void argument by any value.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.exchange import Binding, Destination, Exchange
from warrenmq.routing.field_values import erlang_bytes, erlang_value, values_match
from warrenmq.routing.message_fields import READS_HEADERS
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR, TAG_VOID, type_name

HEADERS: Final = b"headers"
X_MATCH: Final = "x-match"


@final
@mypyc_attr(native_class=True)
class HeadersPattern:
    """The conditions of one binding on the headers."""

    def __init__(self, binding: Binding) -> None:
        self.binding: Binding = binding
        table = decode_table(binding.arguments)
        mode = match_mode(table)
        self.wants_all: bool = mode == b"all" or mode == b"all-with-x"
        takes_x = mode == b"all-with-x" or mode == b"any-with-x"
        self.names: list[str] = []
        self.values: list[Field] = []
        for name, field in table.items():
            if name != X_MATCH and (takes_x or not name.startswith("x-")):
                self.names.append(name)
                self.values.append(field)
        # Arguments that the last `fits` has looked at.
        self.tried: i64 = 0

    def fits(self, headers: dict[str, Field]) -> bool:
        """Whether a message with these headers matches this binding."""
        self.tried = 0
        for index, name in enumerate(self.names):
            self.tried += 1
            header = headers.get(name)
            wanted = self.values[index]
            is_met = header is not None and (wanted.tag == TAG_VOID or values_match(wanted, header))
            if is_met != self.wants_all:
                return is_met
        return self.wants_all


@final
@mypyc_attr(native_class=True)
class HeadersExchange(Exchange):
    """A headers exchange: bindings with their patterns, tried one by one."""

    def __init__(
        self, name: bytes, durable: bool, auto_delete: bool, internal: bool, arguments: bytes
    ) -> None:
        super().__init__(name, HEADERS, durable, auto_delete, internal, arguments)
        self.is_by_keys = False
        self.reads = READS_HEADERS
        self._patterns: dict[Binding, HeadersPattern] = {}

    def check_binding(self, key: bytes, arguments: bytes) -> None:
        match_mode(decode_table(arguments))

    def add(self, binding: Binding) -> None:
        self._patterns[binding] = HeadersPattern(binding)

    def remove(self, binding: Binding) -> None:
        del self._patterns[binding]

    def match(self, keys: list[bytes], fields: dict[str, Field], found: list[Destination]) -> None:
        tried: i64 = len(self._patterns)
        for pattern in self._patterns.values():
            if pattern.fits(fields):
                found.append(pattern.binding.destination)  # see direct.py
            tried += pattern.tried
        self.tried += tried


def match_mode(arguments: dict[str, Field]) -> bytes:
    """The value of `x-match`, b"all" when absent.

    ChannelException 406 if it is none of the four modes.
    """
    field = arguments.get(X_MATCH)
    if field is None:
        return b"all"
    mode = field.value
    if field.tag != TAG_LONGSTR or not isinstance(mode, bytes):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"Invalid x-match field type {type_name(field.tag)} (value {erlang_value(field)}); expected longstr",
        )
    if mode == b"all" or mode == b"any" or mode == b"all-with-x" or mode == b"any-with-x":
        return mode
    raise ChannelException(
        PRECONDITION_FAILED,
        f"Invalid x-match field value {erlang_bytes(mode)}; expected all, any, all-with-x, or any-with-x",
    )
