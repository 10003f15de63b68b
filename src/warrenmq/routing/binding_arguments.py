"""Canonical form of binding arguments: equal with their types, in any order (protocol 5.3)."""

from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.field_types import TAG_LONG, TAG_LONG_TOO


def canonical_arguments(arguments: bytes) -> bytes:
    """Encode the same arguments as the same bytes, whatever their order."""
    if not arguments:
        return b""
    table = decode_table(arguments)
    ordered: dict[str, Field] = {}
    for name in sorted(table):
        field = table[name]
        # `L` is another tag for the type `l`: RabbitMQ reads both alike.
        ordered[name] = Field(TAG_LONG, field.value) if field.tag == TAG_LONG_TOO else field
    return encode_table(ordered)
