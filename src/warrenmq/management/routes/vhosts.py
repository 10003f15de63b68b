"""Virtual hosts, their permissions and their limits."""

from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster
from warrenmq.management.access import Administrator, ManagementUser, VhostWatcher
from warrenmq.management.bodies import JsonBody
from warrenmq.management.errors import bad_request
from warrenmq.management.grants import all_rights
from warrenmq.management.objects.listings import named, rows_of_vhosts, vhosts_of, with_values
from warrenmq.management.objects.users import PERMISSION, TOPIC_PERMISSION
from warrenmq.management.objects.vhosts import MESSAGE_COUNTS, vhosts
from warrenmq.management.rows import (
    ListReply,
    ObjectReply,
    PageReply,
    Row,
    asks_for,
    listed,
    paged,
    single,
)
from warrenmq.management.sessions import Caller
from warrenmq.management.shown import FiguresOf

router = APIRouter(prefix="/api")

VhostLimit = Literal["max-connections", "max-queues"]


@router.get("/vhosts")
def all_vhosts(request: Request, caller: ManagementUser, shown: FiguresOf) -> PageReply:
    """The vhosts that the user sees, with their messages."""
    return paged(request, vhosts(caller, asks_for(request, MESSAGE_COUNTS)), show=shown.vhost)


@router.get("/vhosts/{vhost:segment}")
def one_vhost(request: Request, caller: Administrator, shown: FiguresOf, vhost: str) -> ObjectReply:
    """One vhost."""
    return single(request, shown.vhost(named(vhosts(caller), vhost)))


@router.get("/vhosts/{vhost:segment}/permissions")
def permissions_of_vhost(request: Request, caller: Administrator, vhost: str) -> PageReply:
    """The permissions of all users in a vhost."""
    return paged(request, caller.rows("permissions", list(PERMISSION), vhost))


@router.get("/vhosts/{vhost:segment}/topic-permissions")
def topic_permissions_of_vhost(request: Request, caller: Administrator, vhost: str) -> PageReply:
    """The topic permissions of all users in a vhost."""
    return paged(request, caller.rows("topic_permissions", list(TOPIC_PERMISSION), vhost))


@router.get("/vhost-limits")
def all_vhost_limits(request: Request, caller: ManagementUser) -> ListReply:
    """The limits of all vhosts that the user sees and that have some."""
    return listed(request, _limits(caller, None))


@router.get("/vhost-limits/{vhost:segment}")
def limits_of_vhost(request: Request, caller: VhostWatcher, vhost: str) -> ListReply:
    """The limits of a vhost, in a list of one, or of none."""
    return listed(request, _limits(caller, vhost))


def _limits(caller: Caller, vhost: str | None) -> list[Row]:
    rows = rows_of_vhosts(caller, "vhost_limits", ["limits"], vhosts_of(caller, vhost))
    return with_values(rows, "limits", "value")


# -- changes ---------------------------------------------------------------------------------------


@router.put("/vhosts/{vhost:segment}")
def put_vhost(caller: Administrator, vhost: str, body: JsonBody) -> Response:
    """Create a vhost, in which the user may do everything, or set description and tags of one.

    Those that the body does not have are empty from then on, as in RabbitMQ.
    """
    description, tags = body.text("description"), body.names("tags")
    queue_type = body.text("default_queue_type")
    tracing = body.flag("tracing")
    is_new = {"name": vhost} not in caller.rows("vhosts", ["name"])
    kind = control.AddVhost if is_new else control.SetVhostMetadata
    request = kind(name=vhost, description=description, tags=tags, default_queue_type=queue_type)
    with caller.session() as call:
        call(request, control.Done)
        if is_new:
            call(all_rights(vhost, caller.user), control.Done)
        if body.has("tracing"):
            call(control.SetTracing(vhost=vhost, is_on=tracing), control.Done)
    return Response(status_code=201 if is_new else 204)


@router.delete("/vhosts/{vhost:segment}")
def delete_vhost(caller: Administrator, vhost: str) -> Response:
    """Delete a vhost with all that is in it."""
    caller.call(control.DeleteVhost(name=vhost), control.Done)
    return Response(status_code=204)


@router.post("/vhosts/{vhost:segment}/start/{node:segment}")
def start_vhost(caller: Administrator, vhost: str, node: str) -> Response:
    """Start a vhost on a node: a node that runs has started all of them."""
    if node not in caller.call(DescribeCluster(), ClusterStatus).running:
        raise bad_request(f"Request to node {node} failed with nodedown")
    if {"name": vhost} not in caller.rows("vhosts", ["name"]):
        raise bad_request(f"Request to node {node} failed with no_such_vhost")
    return Response(status_code=204)


@router.put("/vhost-limits/{vhost:segment}/{limit:segment}")
def set_vhost_limit(
    caller: Administrator, vhost: str, limit: VhostLimit, body: JsonBody
) -> Response:
    """Set `max-connections` or `max-queues` of a vhost; below 0 there is none."""
    body.require("value")
    return _with_limit(caller, vhost, {limit: body.number("value")})


@router.delete("/vhost-limits/{vhost:segment}/{limit:segment}")
def clear_vhost_limit(caller: Administrator, vhost: str, limit: VhostLimit) -> Response:
    """Remove a limit of a vhost."""
    return _with_limit(caller, vhost, {limit: -1})


def _with_limit(caller: Caller, vhost: str, changed: dict[str, int]) -> Response:
    """Change one limit of a vhost, whose limits are stored together."""
    rows = _limits(caller, vhost)
    limits = {**(rows[0]["value"] if rows else {}), **changed}
    kept = {name: value for name, value in limits.items() if value >= 0}
    definition = msgspec.json.encode(kept).decode()
    caller.call(control.SetVhostLimits(vhost=vhost, definition=definition), control.Done)
    return Response(status_code=204)
