"""The key that names a binding among those of its source and destination, in paths."""

import base64
from typing import Any
from urllib.parse import quote_plus

import crc32c
import msgspec


def properties_key(routing_key: str, arguments: dict[str, Any]) -> str:
    """The key of a binding: its routing key, form-encoded, and a hash of its arguments.

    `~` stands for an empty routing key without arguments, as in RabbitMQ. A "~" of the routing key
    is encoded as well, so that no two bindings have one key.
    """
    key = quote_plus(routing_key).replace("~", "%7E")
    if not arguments:
        return key or "~"
    digest = crc32c.crc32c(msgspec.json.encode(arguments, order="sorted")).to_bytes(4, "big")
    return f"{key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
