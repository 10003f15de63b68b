"""Users and their permissions, as RabbitMQ's HTTP API shows them."""

from typing import Final

from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_USER: Final = ["user", "tags", "password_hash", "hashing_algorithm", "limits"]


def users(caller: Caller) -> list[Row]:
    """All users."""
    rows = caller.rows("users", _USER)
    return [{"name": row.pop("user"), **row} for row in rows]


PERMISSION: Final = ("user", "vhost", "configure", "write", "read")
TOPIC_PERMISSION: Final = ("user", "vhost", "exchange", "write", "read")
