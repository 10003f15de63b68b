"""Bindings between exchanges, and of queues to exchanges."""

from typing import Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.management.access import ManagementUser, VhostReader, VhostUser
from warrenmq.management.amqp import channel_of
from warrenmq.management.binding_keys import properties_key as key_of
from warrenmq.management.bodies import JsonBody
from warrenmq.management.errors import not_found
from warrenmq.management.objects.bindings import bindings
from warrenmq.management.objects.exchanges import exchange_name
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")

# Destinations of bindings, as paths name them: an exchange or a queue.
Kind = Literal["e", "q"]
_PAIR = "/bindings/{vhost:segment}/e/{source:segment}/{kind:segment}/{destination:segment}"


@router.get("/bindings")
def all_bindings(request: Request, caller: ManagementUser) -> ListReply:
    """The bindings of all vhosts that the user sees."""
    return listed(request, bindings(caller))


@router.get("/bindings/{vhost:segment}")
def bindings_of_vhost(request: Request, caller: VhostReader, vhost: str) -> ListReply:
    """The bindings of a vhost."""
    return listed(request, bindings(caller, vhost))


@router.get(_PAIR)
def bindings_of_pair(
    request: Request, caller: VhostReader, vhost: str, source: str, kind: Kind, destination: str
) -> ListReply:
    """The bindings between an exchange and a queue, or another exchange."""
    return listed(request, _of_pair(caller, vhost, source, kind, destination))


@router.get(_PAIR + "/{properties_key:segment}")
def one_binding(
    request: Request,
    caller: VhostReader,
    vhost: str,
    source: str,
    kind: Kind,
    destination: str,
    properties_key: str,
) -> ObjectReply:
    """One binding, by the key that the lists give."""
    for row in _of_pair(caller, vhost, source, kind, destination):
        if row["properties_key"] == properties_key:
            return single(request, row)
    raise not_found()


@router.post(_PAIR)
def bind(
    caller: VhostUser, vhost: str, source: str, kind: Kind, destination: str, body: JsonBody
) -> Response:
    """Bind a queue or an exchange: 201, also if the binding is there already."""
    key, arguments = body.text("routing_key"), body.table("arguments")
    exchange = exchange_name(source)
    with channel_of(caller, vhost) as channel:
        if kind == "q":
            channel.queue_bind(destination, exchange, key, arguments or None)
        else:
            channel.exchange_bind(exchange_name(destination), exchange, key, arguments or None)
    # Relative to the path of the request, as in RabbitMQ.
    location = f"{quote(destination, '')}/{quote(key_of(key, arguments), '')}"
    return Response(status_code=201, headers={"location": location})


@router.delete(_PAIR + "/{properties_key:segment}")
def unbind(
    caller: VhostUser, vhost: str, source: str, kind: Kind, destination: str, properties_key: str
) -> Response:
    """Delete the binding with this key."""
    for row in _of_pair(caller, vhost, source, kind, destination):
        if row["properties_key"] == properties_key:
            key, arguments = row["routing_key"], row["arguments"] or None
            with channel_of(caller, vhost) as channel:
                if kind == "q":
                    channel.queue_unbind(row["destination"], row["source"], key, arguments)
                else:
                    channel.exchange_unbind(row["destination"], row["source"], key, arguments)
            return Response(status_code=204)
    raise not_found()


def _of_pair(caller: Caller, vhost: str, source: str, kind: Kind, destination: str) -> list[Row]:
    """The bindings between two objects; none if one does not exist."""
    exchange = exchange_name(source)
    end = destination if kind == "q" else exchange_name(destination)
    kinds = {"q": "queue", "e": "exchange"}
    return [
        row
        for row in bindings(caller, vhost, [end])
        if (row["source"], row["destination_type"], row["destination"])
        == (exchange, kinds[kind], end)
    ]
