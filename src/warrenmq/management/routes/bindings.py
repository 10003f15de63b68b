"""Bindings between exchanges, and of queues to exchanges."""

from typing import Literal

from fastapi import APIRouter, Request

from warrenmq.management.access import ManagementUser, VhostReader
from warrenmq.management.errors import not_found
from warrenmq.management.objects import bindings, exchange_name, exchanges, named, queues
from warrenmq.management.rows import JsonReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")

# What a binding leads to, as paths name it.
Kind = Literal["e", "q"]
_PAIR = "/bindings/{vhost:segment}/e/{source:segment}/{kind:segment}/{destination:segment}"


@router.get("/bindings")
def all_bindings(request: Request, caller: ManagementUser) -> JsonReply:
    """The bindings of all vhosts that the user sees."""
    return listed(request, bindings(caller))


@router.get("/bindings/{vhost:segment}")
def bindings_of_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """The bindings of a vhost."""
    return listed(request, bindings(caller, vhost))


@router.get(_PAIR)
def bindings_of_pair(
    request: Request, caller: VhostReader, vhost: str, source: str, kind: Kind, destination: str
) -> JsonReply:
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
) -> JsonReply:
    """One binding, by the key that the lists give."""
    for row in _of_pair(caller, vhost, source, kind, destination):
        if row["properties_key"] == properties_key:
            return single(request, row)
    raise not_found()


def _of_pair(caller: Caller, vhost: str, source: str, kind: Kind, destination: str) -> list[Row]:
    """The bindings between two objects, which must exist. Raises HttpRefusal."""
    exchange = exchange_name(source)
    end = destination if kind == "q" else exchange_name(destination)
    known = exchanges(caller, vhost)
    named(known, exchange)
    named(queues(caller, vhost) if kind == "q" else known, end)
    kinds = {"q": "queue", "e": "exchange"}
    return [
        row
        for row in bindings(caller, vhost)
        if (row["source"], row["destination_type"], row["destination"])
        == (exchange, kinds[kind], end)
    ]
