"""The headers and properties of one message on its way, decoded when an exchange reads them."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.routing.delay import delay_ms
from warrenmq.routing.exchange import Exchange
from warrenmq.routing.message_fields import READS_HEADERS, READS_PROPERTIES, property_fields
from warrenmq.wire.field_table import Field, decode_table

NO_FIELDS: Final[dict[str, Field]] = {}


@final
@mypyc_attr(native_class=True)
class MessageContent:
    """The parts of a message that exchanges may read beside its routing keys; see `Router.route`.

    One object serves one message after the other, which saves an allocation each.
    """

    def __init__(self) -> None:
        self._headers: bytes = b""
        self._properties: bytes = b""
        # Delayed exchanges at which the message has to wait; None if it waits nowhere.
        self._waits: list[Exchange] | None = None
        # The decoded headers. The second exchange that reads them gets the same table.
        self._table: dict[str, Field] | None = None

    def begin(self, headers: bytes, properties: bytes, waits: list[Exchange] | None) -> None:
        """Take over the next message."""
        self._headers = headers
        self._properties = properties
        self._waits = waits
        self._table = None

    def fields(self, reads: i64) -> dict[str, Field]:
        """The fields that an exchange reads; ConnectionException 541 if they are malformed."""
        if reads == READS_HEADERS:
            return self._header_table()
        return property_fields(self._properties) if reads == READS_PROPERTIES else NO_FIELDS

    def has_to_wait(self, exchange: Exchange) -> bool:
        """Whether the message has to wait at the delayed `exchange`, which is noted then."""
        waits = self._waits
        if waits is None or delay_ms(self._header_table()) == 0:
            return False
        waits.append(exchange)
        return True

    def waits_at(self, exchange: Exchange) -> bool:
        """Whether `has_to_wait` noted this exchange last."""
        waits = self._waits
        return waits is not None and len(waits) > 0 and waits[-1] is exchange

    def _header_table(self) -> dict[str, Field]:
        table = self._table
        if table is None:
            table = decode_table(self._headers)
            self._table = table
        return table
