"""Queues."""

from fastapi import APIRouter, Request

from warrenmq.management.access import ManagementUser, VhostReader
from warrenmq.management.objects import bindings, consumers, named, queues
from warrenmq.management.rows import JsonReply, listed, single

router = APIRouter(prefix="/api")


@router.get("/queues")
def all_queues(request: Request, caller: ManagementUser) -> JsonReply:
    """The queues of all vhosts that the user sees, with their counters."""
    return listed(request, queues(caller), is_paged=True)


@router.get("/queues/{vhost:segment}")
def queues_of_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """The queues of a vhost."""
    return listed(request, queues(caller, vhost), is_paged=True)


@router.get("/queues/{vhost:segment}/{queue:segment}")
def one_queue(request: Request, caller: VhostReader, vhost: str, queue: str) -> JsonReply:
    """One queue, with its consumers."""
    row = named(queues(caller, vhost), queue)
    row["consumer_details"] = [
        each for each in consumers(caller, vhost) if each["queue"]["name"] == queue
    ]
    return single(request, row | {"incoming": [], "deliveries": []})


@router.get("/queues/{vhost:segment}/{queue:segment}/bindings")
def bindings_of_queue(request: Request, caller: VhostReader, vhost: str, queue: str) -> JsonReply:
    """The bindings of a queue, that of the default exchange first."""
    named(queues(caller, vhost), queue)
    rows = [
        row
        for row in bindings(caller, vhost)
        if row["destination_type"] == "queue" and row["destination"] == queue
    ]
    return listed(request, rows)
