"""The mechanisms of a login, and the credentials in a client's response (protocol section 10)."""

from typing import Final

from warrenmq.wire.errors import COMMAND_INVALID, SYNTAX_ERROR, ConnectionException
from warrenmq.wire.field_table import decode_table
from warrenmq.wire.field_types import TAG_LONGSTR

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
# The client's certificate has proved who it is.
EXTERNAL: Final = "EXTERNAL"
# Mechanisms of RabbitMQ. A client that picks one of them that is not offered gets another text.
_KNOWN: Final = (PLAIN, AMQPLAIN, EXTERNAL, "RABBIT-CR-DEMO")


def offered_mechanisms(configured: tuple[str, ...], is_tls: bool) -> list[str]:
    """The configured mechanisms that a client may use; EXTERNAL is for clients with TLS."""
    return [mechanism for mechanism in configured if mechanism != EXTERNAL or is_tls]


def check_mechanism(mechanism: str, offered: list[str]) -> None:
    """Raise ConnectionException 503 for a mechanism that was not offered."""
    if mechanism not in offered:
        kind = "invalid" if mechanism in _KNOWN else "unknown"
        text = f"{kind} authentication mechanism '{mechanism}'"
        raise ConnectionException(COMMAND_INVALID, text)


def plain_credentials(mechanism: str, response: bytes) -> tuple[bytes, bytes]:
    """User name and password from a PLAIN or AMQPLAIN response.

    Raises ConnectionException 502 for a malformed response.
    """
    if mechanism == PLAIN:
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
