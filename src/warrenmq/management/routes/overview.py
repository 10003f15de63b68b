"""The node and its user at a glance: overview, whoami, cluster name."""

from fastapi import APIRouter, Request

from warrenmq.management.access import ManagementUser
from warrenmq.management.rows import JsonReply, single

router = APIRouter(prefix="/api")


@router.get("/whoami")
def whoami(request: Request, caller: ManagementUser) -> JsonReply:
    """The name and the tags of the user who asks."""
    return single(request, {"name": caller.user, "tags": caller.tags})


@router.get("/auth")
def auth(request: Request) -> JsonReply:
    """How a browser logs in: with a user and a password."""
    return single(request, {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})
