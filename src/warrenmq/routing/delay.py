"""The delay of a message: its header `x-delay`, in milliseconds."""

from typing import Final

from mypy_extensions import i64

from warrenmq.wire.field_table import Field
from warrenmq.wire.field_types import TAG_TIMESTAMP

X_DELAY: Final = "x-delay"
# A longer delay counts as none.
DELAY_MS_MAX: Final = 4294967295
_DIGITS_MAX: Final = 20


def delay_ms(headers: dict[str, Field]) -> i64:
    """The milliseconds that a message with these headers waits at a delayed exchange, 0 for none.

    Integers and floats count, and integers as text. What is no number, is not above 0, or is above
    DELAY_MS_MAX gives no delay. A message that has waited carries the negative of its delay, so it
    waits once only.
    """
    field = headers.get(X_DELAY)
    if field is None:
        return 0
    value = field.value
    if field.tag == TAG_TIMESTAMP or isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return value if 0 < value <= DELAY_MS_MAX else 0
    if isinstance(value, float):
        return int(value) if 0.0 < value < 4294967296.0 else 0
    if isinstance(value, bytes):
        return _from_text(value)
    return 0


def _from_text(text: bytes) -> i64:
    digits = text[1:] if text[:1] == b"+" else text
    if not digits.isdigit() or len(digits) > _DIGITS_MAX:
        return 0
    delay = int(digits)
    return delay if delay <= DELAY_MS_MAX else 0
