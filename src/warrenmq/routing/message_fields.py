"""The fields of a message that an exchange reads beside the routing keys: headers or properties."""

from typing import Final

from warrenmq.wire.field_table import Field
from warrenmq.wire.field_types import TAG_LONGSTR, TAG_TIMESTAMP
from warrenmq.wire.properties import decode_properties

# Values of `Exchange.reads`.
READS_NOTHING: Final = 0
READS_HEADERS: Final = 1
READS_PROPERTIES: Final = 2

# Properties that an exchange can read.
PROPERTY_NAMES: Final = ("correlation_id", "message_id", "timestamp")


def property_fields(raw: bytes) -> dict[str, Field]:
    """The properties of PROPERTY_NAMES that the block `raw` has, by name; b"" has none.

    Raises ConnectionException 541 if the block does not decode.
    """
    found: dict[str, Field] = {}
    if not raw:
        return found
    properties = decode_properties(raw)
    if properties.correlation_id is not None:
        found["correlation_id"] = Field(TAG_LONGSTR, properties.correlation_id)
    if properties.message_id is not None:
        found["message_id"] = Field(TAG_LONGSTR, properties.message_id)
    if properties.timestamp is not None:
        found["timestamp"] = Field(TAG_TIMESTAMP, properties.timestamp)
    return found
