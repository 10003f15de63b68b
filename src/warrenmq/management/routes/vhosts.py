"""Virtual hosts, their permissions and their limits."""

from fastapi import APIRouter, Request

from warrenmq.management.access import Administrator, ManagementUser, VhostReader
from warrenmq.management.objects import PERMISSION, TOPIC_PERMISSION, named, vhosts, with_values
from warrenmq.management.rows import JsonReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")


@router.get("/vhosts")
def all_vhosts(request: Request, caller: ManagementUser) -> JsonReply:
    """The vhosts that the user sees, with their messages."""
    return listed(request, vhosts(caller), is_paged=True)


@router.get("/vhosts/{vhost:segment}")
def one_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """One vhost."""
    return single(request, named(vhosts(caller), vhost))


@router.get("/vhosts/{vhost:segment}/permissions")
def permissions_of_vhost(request: Request, caller: Administrator, vhost: str) -> JsonReply:
    """The permissions of all users in a vhost."""
    return listed(request, caller.rows("permissions", list(PERMISSION), vhost))


@router.get("/vhosts/{vhost:segment}/topic-permissions")
def topic_permissions_of_vhost(request: Request, caller: Administrator, vhost: str) -> JsonReply:
    """The topic permissions of all users in a vhost."""
    return listed(request, caller.rows("topic_permissions", list(TOPIC_PERMISSION), vhost))


@router.get("/vhost-limits")
def all_vhost_limits(request: Request, caller: Administrator) -> JsonReply:
    """The limits of all vhosts that have some."""
    return listed(request, _limits(caller, ""))


@router.get("/vhost-limits/{vhost:segment}")
def limits_of_vhost(request: Request, caller: Administrator, vhost: str) -> JsonReply:
    """The limits of a vhost, in a list of one, or of none."""
    return listed(request, _limits(caller, vhost))


def _limits(caller: Caller, vhost: str) -> list[Row]:
    return with_values(caller.rows("vhost_limits", ["vhost", "limits"], vhost), "limits", "value")
