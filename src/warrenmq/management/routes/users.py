"""Users, their permissions and their limits; for administrators."""

from fastapi import APIRouter, Request

from warrenmq.management.access import Administrator
from warrenmq.management.errors import not_found
from warrenmq.management.objects import (
    PERMISSION,
    TOPIC_PERMISSION,
    named,
    rows_of_vhosts,
    users,
    vhosts_of,
    with_values,
)
from warrenmq.management.rows import JsonReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")


@router.get("/users")
def all_users(request: Request, caller: Administrator) -> JsonReply:
    """All users."""
    return listed(request, users(caller))


@router.get("/users/without-permissions")
def users_without_permissions(request: Request, caller: Administrator) -> JsonReply:
    """The users that may enter no vhost."""
    allowed = {row["user"] for row in _permissions(caller)}
    return listed(request, [row for row in users(caller) if row["name"] not in allowed])


@router.get("/users/{user:segment}")
def one_user(request: Request, caller: Administrator, user: str) -> JsonReply:
    """One user."""
    return single(request, named(users(caller), user))


@router.get("/users/{user:segment}/permissions")
def permissions_of_user(request: Request, caller: Administrator, user: str) -> JsonReply:
    """The permissions of a user in all vhosts."""
    return listed(request, caller.rows("user_permissions", list(PERMISSION), user=user))


@router.get("/users/{user:segment}/topic-permissions")
def topic_permissions_of_user(request: Request, caller: Administrator, user: str) -> JsonReply:
    """The topic permissions of a user in all vhosts."""
    rows = caller.rows("user_topic_permissions", list(TOPIC_PERMISSION), user=user)
    return listed(request, rows)


@router.get("/permissions")
def all_permissions(request: Request, caller: Administrator) -> JsonReply:
    """The permissions of all users in all vhosts."""
    return listed(request, _permissions(caller))


@router.get("/permissions/{vhost:segment}/{user:segment}")
def one_permission(request: Request, caller: Administrator, vhost: str, user: str) -> JsonReply:
    """The permissions of a user in a vhost."""
    for row in caller.rows("permissions", list(PERMISSION), vhost):
        if row["user"] == user:
            return single(request, row)
    raise not_found()


@router.get("/topic-permissions")
def all_topic_permissions(request: Request, caller: Administrator) -> JsonReply:
    """The topic permissions of all users in all vhosts."""
    vhosts = vhosts_of(caller, None)
    return listed(request, rows_of_vhosts(caller, "topic_permissions", TOPIC_PERMISSION, vhosts))


@router.get("/topic-permissions/{vhost:segment}/{user:segment}")
def topic_permissions_in_vhost(
    request: Request, caller: Administrator, vhost: str, user: str
) -> JsonReply:
    """The topic permissions of a user in a vhost, one for each exchange."""
    rows = caller.rows("topic_permissions", list(TOPIC_PERMISSION), vhost)
    own = [row for row in rows if row["user"] == user]
    if not own:
        raise not_found()
    return listed(request, own)


@router.get("/user-limits")
def all_user_limits(request: Request, caller: Administrator) -> JsonReply:
    """The limits of all users that have some."""
    return listed(request, _limits(caller, ""))


@router.get("/user-limits/{user:segment}")
def limits_of_user(request: Request, caller: Administrator, user: str) -> JsonReply:
    """The limits of a user, in a list of one, or of none."""
    return listed(request, _limits(caller, user))


def _permissions(caller: Caller) -> list[Row]:
    return rows_of_vhosts(caller, "permissions", PERMISSION, vhosts_of(caller, None))


def _limits(caller: Caller, user: str) -> list[Row]:
    rows = caller.rows("user_limits", ["user", "limits"], user=user)
    return with_values(rows, "limits", "value")
