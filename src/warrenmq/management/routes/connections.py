"""Connections, channels and consumers."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol.control import ADMINISTRATOR, MONITORING, CloseConnections, Counted
from warrenmq.management.access import ManagementUser, VhostReader
from warrenmq.management.errors import not_authorised, not_found
from warrenmq.management.objects.channels import (
    channels,
    channels_called,
    consumer_names,
    consumers,
    listed_consumers,
)
from warrenmq.management.objects.connections import (
    connection_names,
    connections,
    connections_called,
)
from warrenmq.management.recent_listings import recent
from warrenmq.management.rows import ObjectReply, PageReply, Row, paged, single
from warrenmq.management.sessions import Caller
from warrenmq.management.shown import FiguresOf

router = APIRouter(prefix="/api")


@router.get("/connections")
def all_connections(request: Request, caller: ManagementUser, shown: FiguresOf) -> PageReply:
    """All connections for a monitor, else those of the user who asks."""
    rows = connections(caller, recent(request))
    return paged(request, rows, show=shown.connection, names=connection_names)


@router.get("/connections/{name:segment}")
def one_connection(
    request: Request, caller: ManagementUser, shown: FiguresOf, name: str
) -> ObjectReply:
    """One connection."""
    return single(request, shown.connection(_seen(caller, connections_called(caller, name), name)))


@router.get("/connections/username/{user:segment}")
def connections_of_user(
    request: Request, caller: ManagementUser, shown: FiguresOf, user: str
) -> PageReply:
    """The connections of a user."""
    rows = [row for row in connections(caller, recent(request)) if row.get("user") == user]
    return paged(request, rows, show=shown.connection, names=connection_names)


@router.get("/connections/{name:segment}/channels")
def channels_of_connection(
    request: Request, caller: ManagementUser, shown: FiguresOf, name: str
) -> PageReply:
    """The channels of a connection."""
    _seen(caller, caller.rows("connections", ["name"], names=[name]), name)
    rows = [
        row for row in channels_called(caller, name) if row["connection_details"]["name"] == name
    ]
    return paged(request, rows, show=shown.channel)


@router.get("/vhosts/{vhost:segment}/connections")
def connections_of_vhost(
    request: Request, caller: VhostReader, shown: FiguresOf, vhost: str
) -> PageReply:
    """The connections to a vhost."""
    rows = [row for row in connections(caller, recent(request)) if row.get("vhost") == vhost]
    return paged(request, rows, show=shown.connection, names=connection_names)


@router.get("/vhosts/{vhost:segment}/channels")
def channels_of_vhost(
    request: Request, caller: VhostReader, shown: FiguresOf, vhost: str
) -> PageReply:
    """The channels in a vhost."""
    rows = [row for row in channels(caller, recent(request)) if row["vhost"] == vhost]
    return paged(request, rows, show=shown.channel)


@router.get("/channels")
def all_channels(request: Request, caller: ManagementUser, shown: FiguresOf) -> PageReply:
    """All channels for a monitor, else those of the user who asks."""
    return paged(request, channels(caller, recent(request)), show=shown.channel)


@router.get("/channels/{name:segment}")
def one_channel(
    request: Request, caller: ManagementUser, shown: FiguresOf, name: str
) -> ObjectReply:
    """One channel, with its consumers."""
    row = shown.channel(_seen(caller, channels_called(caller, name), name))
    row["consumer_details"] = [
        each
        for each in consumers(caller, row["vhost"])
        if each["channel_details"].get("name") == name
    ]
    return single(request, row | {"publishes": [], "deliveries": []})


@router.get("/consumers")
def all_consumers(request: Request, caller: ManagementUser) -> PageReply:
    """The consumers of all vhosts that the user sees."""
    return paged(request, listed_consumers(caller, recent(request)), names=consumer_names)


@router.get("/consumers/{vhost:segment}")
def consumers_of_vhost(request: Request, caller: VhostReader, vhost: str) -> PageReply:
    """The consumers of a vhost."""
    return paged(request, listed_consumers(caller, recent(request), vhost), names=consumer_names)


@router.delete("/connections/{name:segment}")
def close_connection(request: Request, caller: ManagementUser, name: str) -> Response:
    """Close a connection with 320 and the text of the header `X-Reason`; own ones, or any."""
    columns = ["name", "pid", "user"]
    row = _seen(caller, caller.rows("connections", columns, names=[name]), name)
    if row["user"] != caller.user and not caller.has_tag(ADMINISTRATOR):
        raise not_authorised("User not authorised to access object")
    caller.call(CloseConnections(reason=_reason(request), pid=row["pid"]), Counted)
    return Response(status_code=204)


@router.delete("/connections/username/{user:segment}")
def close_connections_of_user(request: Request, caller: ManagementUser, user: str) -> Response:
    """Close all connections of a user: of oneself, or of anybody."""
    if user != caller.user and not caller.has_tag(ADMINISTRATOR):
        raise not_authorised("User not authorised to access object")
    wanted = CloseConnections(reason=_reason(request), user=user, is_everywhere=True)
    caller.call(wanted, Counted)
    return Response(status_code=204)


def _seen(caller: Caller, rows: list[Row], name: str) -> Row:
    """The row of a connection or a channel with this name, if the caller sees it.

    Raises HttpRefusal: a caller who sees only its own is not told which others there are.
    """
    for row in rows:
        if row["name"] == name:
            return row
    if caller.has_tag(MONITORING):
        raise not_found()
    raise not_authorised("User not authorised to access object")


def _reason(request: Request) -> str:
    return request.headers.get("x-reason", "Closed via management plugin")
