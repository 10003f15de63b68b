"""Exchanges."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.management.access import ManagementUser, VhostReader, VhostUser
from warrenmq.management.amqp import channel_of, has_exchange
from warrenmq.management.bodies import JsonBody
from warrenmq.management.errors import not_found
from warrenmq.management.messages import publish_message
from warrenmq.management.objects.bindings import bindings
from warrenmq.management.objects.exchanges import exchange_name, exchanges
from warrenmq.management.objects.listings import named
from warrenmq.management.rows import (
    JsonReply,
    ListReply,
    ObjectReply,
    PageReply,
    listed,
    paged,
    single,
)
from warrenmq.management.shown import FiguresOf

router = APIRouter(prefix="/api")


@router.get("/exchanges")
def all_exchanges(request: Request, caller: ManagementUser, shown: FiguresOf) -> PageReply:
    """The exchanges of all vhosts that the user sees."""
    return paged(request, exchanges(caller), show=shown.exchange)


@router.get("/exchanges/{vhost:segment}")
def exchanges_of_vhost(
    request: Request, caller: VhostReader, shown: FiguresOf, vhost: str
) -> PageReply:
    """The exchanges of a vhost."""
    return paged(request, exchanges(caller, vhost), show=shown.exchange)


@router.get("/exchanges/{vhost:segment}/{exchange:segment}")
def one_exchange(
    request: Request, caller: VhostReader, shown: FiguresOf, vhost: str, exchange: str
) -> ObjectReply:
    """One exchange; `amq.default` is the default one."""
    name = exchange_name(exchange)
    row = shown.exchange(named(exchanges(caller, vhost, [name]), name))
    return single(request, row | {"incoming": [], "outgoing": []})


@router.get("/exchanges/{vhost:segment}/{exchange:segment}/bindings/source")
def bindings_from(request: Request, caller: VhostReader, vhost: str, exchange: str) -> ListReply:
    """The bindings from an exchange."""
    name = exchange_name(exchange)
    named(exchanges(caller, vhost, [name]), name)
    rows = [row for row in bindings(caller, vhost, [name]) if row["source"] == name]
    return listed(request, rows)


@router.get("/exchanges/{vhost:segment}/{exchange:segment}/bindings/destination")
def bindings_to(request: Request, caller: VhostReader, vhost: str, exchange: str) -> ListReply:
    """The bindings to an exchange."""
    name = exchange_name(exchange)
    named(exchanges(caller, vhost, [name]), name)
    rows = [
        row
        for row in bindings(caller, vhost, [name])
        if row["destination_type"] == "exchange" and row["destination"] == name
    ]
    return listed(request, rows)


@router.put("/exchanges/{vhost:segment}/{exchange:segment}")
def declare_exchange(caller: VhostUser, vhost: str, exchange: str, body: JsonBody) -> Response:
    """Declare an exchange: 201, or 204 if it is there already with the same arguments."""
    kind = body.text("type", "direct")
    durable, auto_delete = body.flag("durable"), body.flag("auto_delete")
    internal, arguments = body.flag("internal"), body.table("arguments")
    name = exchange_name(exchange)
    with channel_of(caller, vhost) as channel:
        status = 204 if has_exchange(channel, name) else 201
        channel.exchange_declare(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments or None,
        )
    return Response(status_code=status)


@router.delete("/exchanges/{vhost:segment}/{exchange:segment}")
def delete_exchange(request: Request, caller: VhostUser, vhost: str, exchange: str) -> Response:
    """Delete an exchange; `if-unused=true` refuses one with bindings."""
    name = exchange_name(exchange)
    with channel_of(caller, vhost) as channel:
        if not has_exchange(channel, name):
            raise not_found()
        is_careful = request.query_params.get("if-unused") == "true"
        channel.exchange_delete(name, if_unused=is_careful)
    return Response(status_code=204)


@router.post("/exchanges/{vhost:segment}/{exchange:segment}/publish")
def publish(caller: VhostUser, vhost: str, exchange: str, body: JsonBody) -> JsonReply:
    """Publish a message; `routed` says whether a queue took it."""
    return JsonReply({"routed": publish_message(caller, vhost, exchange_name(exchange), body)})
