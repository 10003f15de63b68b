"""Names and argument tables in the JSON of definitions, and back.

JSON has fewer types than a table: a timestamp becomes a number of seconds, a decimal a number, and
every number comes back as the smallest of `I`, `l` and `d` that fits. Bytes that are not UTF-8
become a text that names their base64, in RabbitMQ's words; unlike RabbitMQ, an import turns that
text into the bytes again.
"""

import base64
import binascii
from decimal import Decimal
from typing import Any, Final

from warrenmq.admin.definitions.document import DefinitionsError, Pairs, pairs
from warrenmq.wire.field_table import Field, decode_table, fields_from_python
from warrenmq.wire.field_types import TAG_ARRAY, TAG_DECIMAL, TAG_LONGSTR, TAG_TABLE

NAME_BYTES_MAX: Final = 255
_NOT_UTF8: Final = "Not UTF-8, base64 is: "


def text_of(raw: bytes) -> str:
    """The text that stands for `raw` in JSON."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8 + base64.b64encode(raw).decode()


def bytes_of(text: str) -> bytes:
    """The bytes that `text` stands for."""
    if text.startswith(_NOT_UTF8):
        try:
            raw = base64.b64decode(text.removeprefix(_NOT_UTF8), validate=True)
            raw.decode()
        except UnicodeDecodeError:
            return raw
        except (binascii.Error, ValueError):
            pass
    return text.encode()


def name_of(text: str, what: str) -> bytes:
    """The bytes of a name. DefinitionsError when it is longer than a name may be."""
    name = bytes_of(text)
    if len(name) > NAME_BYTES_MAX:
        raise DefinitionsError(
            f"{what} {text[:40]!r}... is too long: {len(name)} bytes, limit is {NAME_BYTES_MAX}"
        )
    return name


def json_of(table: bytes) -> dict[str, Any]:
    """The JSON object of an argument table."""
    return _object(decode_table(table)) if table else {}


def fields_of(given: Pairs) -> dict[str, Field]:
    """The fields of a JSON object. ValueError or TypeError when a value has no place in a table."""
    return {_key(key): _restored(field) for key, field in fields_from_python(pairs(given)).items()}


def _object(table: dict[str, Field]) -> dict[str, Any]:
    return {
        text_of(key.encode("utf-8", "surrogateescape")): _value(field)
        for key, field in table.items()
    }


def _value(field: Field) -> Any:
    value = field.value
    if isinstance(value, bytes):
        return text_of(value)
    if field.tag == TAG_TABLE and isinstance(value, dict):
        return _object(value)
    if field.tag == TAG_ARRAY and isinstance(value, list):
        return [_value(item) for item in value]
    if field.tag == TAG_DECIMAL and isinstance(value, tuple):
        return float(Decimal(value[1]).scaleb(-value[0]))
    return value


def _key(text: str) -> str:
    return bytes_of(text).decode("utf-8", "surrogateescape")


def _restored(field: Field) -> Field:
    """`field` with the bytes that texts in it stand for."""
    value = field.value
    if field.tag == TAG_LONGSTR and isinstance(value, bytes):
        return Field(TAG_LONGSTR, bytes_of(value.decode("utf-8", "surrogateescape")))
    if isinstance(value, dict):
        return Field(TAG_TABLE, {_key(key): _restored(item) for key, item in value.items()})
    if isinstance(value, list):
        return Field(TAG_ARRAY, [_restored(item) for item in value])
    return field
