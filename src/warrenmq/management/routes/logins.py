"""Counted logins. A node counts its own; those of others are asked for at their own API."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.watching import ResetLoginAttempts
from warrenmq.management.access import Administrator, Monitor
from warrenmq.management.errors import not_found
from warrenmq.management.rows import ListReply, listed
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/auth/attempts")

_COUNTS = ["protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"]


@router.get("/{node:segment}")
def attempts(request: Request, caller: Monitor, node: str) -> ListReply:
    """Logins by protocol."""
    _expect_own(caller, node)
    return listed(request, caller.rows("auth_attempts", _COUNTS))


@router.get("/{node:segment}/source")
def attempts_by_source(request: Request, caller: Monitor, node: str) -> ListReply:
    """Logins by address and user, once `rabbitmqctl` has switched their counting on."""
    _expect_own(caller, node)
    columns = ["remote_address", "username", *_COUNTS]
    return listed(request, caller.rows("auth_attempts_by_source", columns))


@router.delete("/{node:segment}")
@router.delete("/{node:segment}/source")
def reset_attempts(caller: Administrator, node: str) -> Response:
    """Count logins anew, by protocol and by source."""
    _expect_own(caller, node)
    caller.call(ResetLoginAttempts(), Done)
    return Response(status_code=204)


def _expect_own(caller: Caller, node: str) -> None:
    if node != caller.description.node:
        raise not_found()
