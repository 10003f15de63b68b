"""The credentials in a client's authentication response (protocol section 10)."""

from warrenmq.wire.errors import SYNTAX_ERROR, ConnectionException
from warrenmq.wire.field_table import decode_table
from warrenmq.wire.field_types import TAG_LONGSTR


def plain_credentials(mechanism: str, response: bytes) -> tuple[bytes, bytes]:
    """User name and password from a PLAIN or AMQPLAIN response.

    Raises ConnectionException 502 for a malformed response.
    """
    if mechanism == "PLAIN":
        parts = response.split(b"\x00")
        # The authorisation id (the part before the first NUL) must be empty.
        if len(parts) != 3 or parts[0]:
            raise ConnectionException(SYNTAX_ERROR, "PLAIN response invalid")
        return parts[1], parts[2]
    try:
        table = decode_table(response)
    except ConnectionException:
        raise ConnectionException(SYNTAX_ERROR, "AMQPLAIN response invalid") from None
    login = table.get("LOGIN")
    password = table.get("PASSWORD")
    if login is None or password is None or login.tag != TAG_LONGSTR or password.tag != TAG_LONGSTR:
        raise ConnectionException(
            SYNTAX_ERROR, "AMQPLAIN auth info is missing LOGIN or PASSWORD field"
        )
    assert isinstance(login.value, bytes) and isinstance(password.value, bytes)
    return login.value, password.value
