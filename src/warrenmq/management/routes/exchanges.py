"""Exchanges."""

from fastapi import APIRouter, Request

from warrenmq.management.access import ManagementUser, VhostReader
from warrenmq.management.objects import bindings, exchange_name, exchanges, named
from warrenmq.management.rows import JsonReply, listed, single

router = APIRouter(prefix="/api")


@router.get("/exchanges")
def all_exchanges(request: Request, caller: ManagementUser) -> JsonReply:
    """The exchanges of all vhosts that the user sees."""
    return listed(request, exchanges(caller), is_paged=True)


@router.get("/exchanges/{vhost:segment}")
def exchanges_of_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """The exchanges of a vhost."""
    return listed(request, exchanges(caller, vhost), is_paged=True)


@router.get("/exchanges/{vhost:segment}/{exchange:segment}")
def one_exchange(request: Request, caller: VhostReader, vhost: str, exchange: str) -> JsonReply:
    """One exchange; `amq.default` is the default one."""
    row = named(exchanges(caller, vhost), exchange_name(exchange))
    return single(request, row | {"incoming": [], "outgoing": []})


@router.get("/exchanges/{vhost:segment}/{exchange:segment}/bindings/source")
def bindings_from(request: Request, caller: VhostReader, vhost: str, exchange: str) -> JsonReply:
    """The bindings from an exchange."""
    name = exchange_name(exchange)
    named(exchanges(caller, vhost), name)
    return listed(request, [row for row in bindings(caller, vhost) if row["source"] == name])


@router.get("/exchanges/{vhost:segment}/{exchange:segment}/bindings/destination")
def bindings_to(request: Request, caller: VhostReader, vhost: str, exchange: str) -> JsonReply:
    """The bindings to an exchange."""
    name = exchange_name(exchange)
    named(exchanges(caller, vhost), name)
    rows = [
        row
        for row in bindings(caller, vhost)
        if row["destination_type"] == "exchange" and row["destination"] == name
    ]
    return listed(request, rows)
