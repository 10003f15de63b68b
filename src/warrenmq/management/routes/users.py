"""Users, their permissions and their limits; for administrators."""

from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.client.definitions import import_definitions
from warrenmq.admin.protocol import control
from warrenmq.management.access import Administrator
from warrenmq.management.bodies import Body, JsonBody
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.objects.listings import named, rows_of_vhosts, vhosts_of, with_values
from warrenmq.management.objects.users import PERMISSION, TOPIC_PERMISSION, users
from warrenmq.management.rows import ListReply, ObjectReply, PageReply, Row, listed, paged, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")

UserLimit = Literal["max-connections", "max-channels"]


@router.get("/users")
def all_users(request: Request, caller: Administrator) -> PageReply:
    """All users."""
    return paged(request, users(caller))


@router.get("/users/without-permissions")
def users_without_permissions(request: Request, caller: Administrator) -> PageReply:
    """The users that may enter no vhost."""
    allowed = {row["user"] for row in _permissions(caller)}
    return paged(request, [row for row in users(caller) if row["name"] not in allowed])


@router.get("/users/{user:segment}")
def one_user(request: Request, caller: Administrator, user: str) -> ObjectReply:
    """One user."""
    return single(request, named(users(caller), user))


@router.get("/users/{user:segment}/permissions")
def permissions_of_user(request: Request, caller: Administrator, user: str) -> PageReply:
    """The permissions of a user in all vhosts."""
    return paged(request, caller.rows("user_permissions", list(PERMISSION), user=user))


@router.get("/users/{user:segment}/topic-permissions")
def topic_permissions_of_user(request: Request, caller: Administrator, user: str) -> PageReply:
    """The topic permissions of a user in all vhosts."""
    rows = caller.rows("user_topic_permissions", list(TOPIC_PERMISSION), user=user)
    return paged(request, rows)


@router.get("/permissions")
def all_permissions(request: Request, caller: Administrator) -> PageReply:
    """The permissions of all users in all vhosts."""
    return paged(request, _permissions(caller))


@router.get("/permissions/{vhost:segment}/{user:segment}")
def one_permission(request: Request, caller: Administrator, vhost: str, user: str) -> ObjectReply:
    """The permissions of a user in a vhost."""
    for row in caller.rows("permissions", list(PERMISSION), vhost):
        if row["user"] == user:
            return single(request, row)
    raise not_found()


@router.get("/topic-permissions")
def all_topic_permissions(request: Request, caller: Administrator) -> PageReply:
    """The topic permissions of all users in all vhosts."""
    vhosts = vhosts_of(caller, None)
    return paged(request, rows_of_vhosts(caller, "topic_permissions", TOPIC_PERMISSION, vhosts))


@router.get("/topic-permissions/{vhost:segment}/{user:segment}")
def topic_permissions_in_vhost(
    request: Request, caller: Administrator, vhost: str, user: str
) -> ListReply:
    """The topic permissions of a user in a vhost, one for each exchange."""
    rows = caller.rows("topic_permissions", list(TOPIC_PERMISSION), vhost)
    own = [row for row in rows if row["user"] == user]
    if not own:
        raise not_found()
    return listed(request, own)


@router.get("/topic-permissions/{vhost:segment}/{user:segment}/{exchange:segment}")
def topic_permissions_at_exchange(
    request: Request, caller: Administrator, vhost: str, user: str, exchange: str
) -> ListReply:
    """The topic permissions of a user at an exchange, in a list of one."""
    rows = caller.rows("topic_permissions", list(TOPIC_PERMISSION), vhost)
    own = [row for row in rows if (row["user"], row["exchange"]) == (user, exchange)]
    if not own:
        raise not_found()
    return listed(request, own)


@router.get("/user-limits")
def all_user_limits(request: Request, caller: Administrator) -> ListReply:
    """The limits of all users that have some."""
    return listed(request, _limits(caller, ""))


@router.get("/user-limits/{user:segment}")
def limits_of_user(request: Request, caller: Administrator, user: str) -> ListReply:
    """The limits of a user, in a list of one, or of none."""
    named(users(caller), user)
    return listed(request, _limits(caller, user))


def _permissions(caller: Caller) -> list[Row]:
    return rows_of_vhosts(caller, "permissions", PERMISSION, vhosts_of(caller, None))


def _limits(caller: Caller, user: str) -> list[Row]:
    rows = caller.rows("user_limits", ["user", "limits"], user=user)
    return with_values(rows, "limits", "value")


# -- changes ---------------------------------------------------------------------------------------


@router.put("/users/{user:segment}")
def put_user(caller: Administrator, user: str, body: JsonBody) -> Response:
    """Create a user, or set tags and password of one; `password_hash` "" allows no password."""
    if "tags" not in body.values:
        raise bad_request("tags_not_present")
    if body.has("password") and body.has("password_hash"):
        raise bad_request("both_password_and_password_hash_are_provided")
    is_new = all([row["name"] != user for row in users(caller)])
    tags = body.names("tags")
    with caller.session() as call:
        if body.has("password"):
            password = body.text("password")
            if is_new:
                call(control.AddUser(name=user, password=password), control.Done)
            else:
                call(control.ChangePassword(name=user, password=password), control.Done)
            call(control.SetUserTags(name=user, tags=tags), control.Done)
        elif is_new or body.has("password_hash"):
            import_definitions(call, _definition(user, tags, body))
        else:
            call(control.SetUserTags(name=user, tags=tags), control.Done)
    return Response(status_code=201 if is_new else 204)


def _definition(user: str, tags: list[str], body: Body) -> control.ImportDefinitions:
    """An import of one user, which may have a hash in place of a password."""
    row: dict[str, Any] = {
        "name": user,
        "tags": ",".join(tags),
        "password_hash": body.text("password_hash"),
    }
    if body.has("hashing_algorithm"):
        row["hashing_algorithm"] = body.text("hashing_algorithm")
    return control.ImportDefinitions(json=msgspec.json.encode({"users": [row]}))


@router.delete("/users/{user:segment}")
def delete_user(caller: Administrator, user: str) -> Response:
    """Delete a user and its permissions."""
    caller.call(control.DeleteUser(name=user), control.Done)
    return Response(status_code=204)


@router.post("/users/bulk-delete")
def delete_users(caller: Administrator, body: JsonBody) -> Response:
    """Delete several users, or none if one does not exist."""
    body.require("users")
    wanted = dict.fromkeys(body.names("users"))
    known = {row["name"] for row in users(caller)}
    for user in wanted:
        if user not in known:
            raise bad_request(["no_such_user", user])
    with caller.session() as call:
        for user in wanted:
            call(control.DeleteUser(name=user), control.Done)
    return Response(status_code=204)


@router.put("/permissions/{vhost:segment}/{user:segment}")
def set_permissions(caller: Administrator, vhost: str, user: str, body: JsonBody) -> Response:
    """Set the permissions of a user in a vhost: three regular expressions."""
    body.require("configure", "write", "read")
    request = control.SetPermissions(
        vhost=vhost,
        user=user,
        configure=body.text("configure"),
        write=body.text("write"),
        read=body.text("read"),
    )
    _expect_both(caller, vhost, user)
    rows = caller.rows("permissions", ["user"], vhost)
    caller.call(request, control.Done)
    return Response(status_code=204 if {"user": user} in rows else 201)


@router.delete("/permissions/{vhost:segment}/{user:segment}")
def clear_permissions(caller: Administrator, vhost: str, user: str) -> Response:
    """Take a user's access to a vhost away."""
    if {"user": user} not in caller.rows("permissions", ["user"], vhost):
        raise not_found()
    caller.call(control.ClearPermissions(vhost=vhost, user=user), control.Done)
    return Response(status_code=204)


@router.put("/topic-permissions/{vhost:segment}/{user:segment}")
def set_topic_permissions(caller: Administrator, vhost: str, user: str, body: JsonBody) -> Response:
    """Set the permissions of a user at a topic exchange: two regular expressions."""
    body.require("exchange", "write", "read")
    request = control.SetTopicPermissions(
        vhost=vhost,
        user=user,
        exchange=body.text("exchange"),
        write=body.text("write"),
        read=body.text("read"),
    )
    _expect_both(caller, vhost, user)
    rows = caller.rows("topic_permissions", ["user"], vhost)
    caller.call(request, control.Done)
    # Another exchange of the same user is nothing new either, as in RabbitMQ.
    return Response(status_code=204 if {"user": user} in rows else 201)


@router.delete("/topic-permissions/{vhost:segment}/{user:segment}")
def clear_topic_permissions(caller: Administrator, vhost: str, user: str) -> Response:
    """Clear the permissions of a user at all topic exchanges of a vhost."""
    if {"user": user} not in caller.rows("topic_permissions", ["user"], vhost):
        raise not_found()
    caller.call(control.ClearTopicPermissions(vhost=vhost, user=user), control.Done)
    return Response(status_code=204)


@router.delete("/topic-permissions/{vhost:segment}/{user:segment}/{exchange:segment}")
def clear_permissions_at_exchange(
    caller: Administrator, vhost: str, user: str, exchange: str
) -> Response:
    """Clear the permissions of a user at one topic exchange."""
    row = {"user": user, "exchange": exchange}
    if row not in caller.rows("topic_permissions", ["user", "exchange"], vhost):
        raise not_found()
    request = control.ClearTopicPermissions(vhost=vhost, user=user, exchange=exchange)
    caller.call(request, control.Done)
    return Response(status_code=204)


@router.put("/user-limits/{user:segment}/{limit:segment}")
def set_user_limit(caller: Administrator, user: str, limit: UserLimit, body: JsonBody) -> Response:
    """Set `max-connections` or `max-channels` of a user; below 0 there is none."""
    body.require("value")
    if all([row["name"] != user for row in users(caller)]):
        raise bad_request(["no_such_user", user])
    caller.call(_user_limit(user, limit, max(-1, body.number("value"))), control.Done)
    return Response(status_code=204)


@router.delete("/user-limits/{user:segment}/{limit:segment}")
def clear_user_limit(caller: Administrator, user: str, limit: UserLimit) -> Response:
    """Remove a limit of a user."""
    caller.call(_user_limit(user, limit, -1), control.Done)
    return Response(status_code=204)


def _user_limit(user: str, limit: UserLimit, value: int) -> control.SetUserLimits:
    if limit == "max-connections":
        return control.SetUserLimits(name=user, max_connections=value)
    return control.SetUserLimits(name=user, max_channels=value)


def _expect_both(caller: Caller, vhost: str, user: str) -> None:
    """Raise HttpRefusal with RabbitMQ's reason unless vhost and user exist."""
    if vhost not in vhosts_of(caller, None) or all([row["name"] != user for row in users(caller)]):
        raise bad_request("vhost_or_user_not_found")
