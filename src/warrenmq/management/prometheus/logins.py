"""The metrics of logins."""

from collections.abc import Iterator
from typing import Final

from warrenmq.management.prometheus.metrics import RABBITMQ, Family, family
from warrenmq.management.prometheus.reading import Table

# The meaning of each counter by its column.
_LOGINS: Final = {
    "auth_attempts": "Logins that were tried",
    "auth_attempts_succeeded": "Logins that were granted",
    "auth_attempts_failed": "Logins that were refused",
}
LOGIN_COLUMNS: Final = ["protocol", *_LOGINS]


def logins(infix: str, table: Table) -> Iterator[Family]:
    """Counted logins by protocol."""
    for name, text in _LOGINS.items():
        counts = zip(table.texts(("protocol",)), map(float, table.column(name)), strict=True)
        yield family(f"{RABBITMQ}_{infix}{name}", "counter", text, ("protocol",), counts)
