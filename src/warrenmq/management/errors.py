"""How a request of HTTP is refused: RabbitMQ's status codes and bodies."""

from collections.abc import Mapping
from typing import Any

# The header that makes browsers and clients send a user and a password.
ASK_FOR_LOGIN = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


class HttpRefusal(Exception):
    """A reply with an error: JSON with `error` (a code) and `reason` (a text, or several)."""

    def __init__(
        self,
        status: int,
        error: str,
        reason: str | list[Any],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers


class LoginRequired(Exception):
    """The request has no user and password: a reply without a body asks for them."""


class NotAcceptable(Exception):
    """The client accepts no JSON: a reply without a body says so."""


def bad_request(reason: str | list[Any]) -> HttpRefusal:
    """The request, or what it asks for, is not valid."""
    return HttpRefusal(400, "bad_request", reason)


def not_authorised(reason: str) -> HttpRefusal:
    """The user may not do this; RabbitMQ never answers 403."""
    return HttpRefusal(401, "not_authorised", reason)


def login_failed(reason: str = "Login failed") -> HttpRefusal:
    """The user and the password do not fit, or not from this address."""
    return HttpRefusal(401, "not_authorized", reason, ASK_FOR_LOGIN)


def not_found() -> HttpRefusal:
    """The path, or what it names, does not exist."""
    return HttpRefusal(404, "Object Not Found", "Not Found")


def missing(reason: str) -> HttpRefusal:
    """The path is right, but something that the change needs does not exist."""
    return HttpRefusal(404, "not_found", reason)
