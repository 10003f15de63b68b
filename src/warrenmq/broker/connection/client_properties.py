"""The client properties of connection.start-ok (protocol section 2)."""

from warrenmq.wire.field_table import decode_table
from warrenmq.wire.field_types import TAG_BOOL, TAG_LONGSTR, TAG_TABLE


class ClientProperties:
    """The client properties that the broker uses.

    `name` is the property `connection_name`, or empty; `capabilities` are the ones set to true.
    """

    def __init__(self, name: str, capabilities: set[str]) -> None:
        self.name: str = name
        self.capabilities: set[str] = capabilities


def read_client_properties(raw: bytes) -> ClientProperties:
    """Decode the client properties in the table body `raw`; ConnectionException if malformed.

    A property of an unexpected type is ignored.
    """
    properties = decode_table(raw)
    name = ""
    field = properties.get("connection_name")
    if field is not None and field.tag == TAG_LONGSTR and isinstance(field.value, bytes):
        name = field.value.decode("utf-8", "replace")
    capabilities: set[str] = set()
    field = properties.get("capabilities")
    if field is not None and field.tag == TAG_TABLE and isinstance(field.value, dict):
        for key, value in field.value.items():
            if value.tag == TAG_BOOL and value.value is True:
                capabilities.add(key)
    return ClientProperties(name, capabilities)
