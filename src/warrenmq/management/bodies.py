"""Bodies of requests: JSON objects, whose values tools also send as strings.

rabbitmqadmin sends everything as strings ("true", "5"), so flags and numbers are taken in both
forms. A body is checked whole before anything is changed. Refusals have RabbitMQ's reasons.
"""

import re
from email import message_from_bytes
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Request

from warrenmq.management.errors import HttpRefusal, bad_request

_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")


class Body:
    """The JSON object of a request; an empty body is an empty object."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def require(self, *names: str) -> None:
        """Raise HttpRefusal that lists the names that are missing."""
        missing = [f"{{key_missing,{name}}}" for name in names if name not in self.values]
        if missing:
            raise bad_request(f"[{','.join(missing)}]")

    def has(self, name: str) -> bool:
        """Whether the body has a value other than null."""
        return self.values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        """A string. Raises HttpRefusal for another type."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise _wrong("not_string", value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean, or its name. Raises HttpRefusal for anything else."""
        value = self.values.get(name)
        if value is None:
            return default
        if value is True or value == "true":
            return True
        if value is False or value == "false":
            return False
        raise _wrong("not_boolean", value)

    def number(self, name: str, default: int = 0) -> int:
        """An integer, or its digits. Raises HttpRefusal for anything else."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            return int(value)
        raise _wrong("not_integer", value)

    def table(self, name: str) -> dict[str, Any]:
        """An object; an empty list means an empty one, as in RabbitMQ's own replies."""
        value = self.values.get(name)
        if value is None or value == []:
            return {}
        if not isinstance(value, dict):
            raise _wrong("not_a_proplist", value)
        return value

    def names(self, name: str) -> list[str]:
        """A list of strings, or one string with commas between them."""
        value = self.values.get(name)
        if value is None:
            return []
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, list) or not all([isinstance(each, str) for each in value]):
            raise _wrong("not_a_list_of_strings", value)
        return [each.strip() for each in value if each.strip()]


def parsed(data: bytes) -> Body:
    """The object in `data`. Raises HttpRefusal unless it is a JSON object, or nothing."""
    if not data.strip():
        return Body({})
    try:
        values = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_request("not_json") from None
    if not isinstance(values, dict):
        raise bad_request("not_json")
    return Body(values)


def field_of_form(content_type: str, data: bytes, name: str) -> bytes:
    """The content of a field of a form (`multipart/form-data`), such as a file.

    Raises HttpRefusal if the form has no such field.
    """
    # Forms have the syntax of mail.
    form = message_from_bytes(f"content-type: {content_type}\r\n\r\n".encode("latin-1") + data)
    for part in form.walk():
        if part.get_param("name", header="content-disposition") == name:
            content = part.get_payload(decode=True)
            # A field that is a form itself has no content of its own.
            if isinstance(content, bytes):
                return content
    raise bad_request(f"the form has no field '{name}'")


async def raw_body(request: Request) -> bytes:
    """The bytes of the request's body. Raises HttpRefusal for more than the limit."""
    limit = request.app.state.options.max_body_size
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise HttpRefusal(413, "bad_request", f"the body has more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


RawBody = Annotated[bytes, Depends(raw_body)]


def _json_body(data: RawBody) -> Body:
    return parsed(data)


JsonBody = Annotated[Body, Depends(_json_body)]


def _wrong(kind: str, value: Any) -> HttpRefusal:
    return bad_request([kind, value])
