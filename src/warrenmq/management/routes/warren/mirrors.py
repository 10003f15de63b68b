"""Mirrored queues: the nodes that have copies, and how far these are behind."""

from collections import Counter

import msgspec
from fastapi import APIRouter, Request

from warrenmq.admin.protocol.mirrors import DescribeMirrors, MirrorStatus
from warrenmq.management.access import ManagementUser, VhostReader
from warrenmq.management.objects.queue_copies import mirrored_queues, mirrors_in_sync
from warrenmq.management.recent_listings import recent
from warrenmq.management.rows import ListReply, ObjectReply, PageReply, Row, listed, paged, single

router = APIRouter(prefix="/api/warren")


@router.get("/mirrors")
def all_mirrored_queues(request: Request, caller: ManagementUser) -> PageReply:
    """The mirrored queues of all vhosts that the user sees."""
    return paged(request, mirrored_queues(caller, recent(request)))


@router.get("/mirrors/{vhost:segment}")
def mirrored_queues_of_vhost(request: Request, caller: VhostReader, vhost: str) -> PageReply:
    """The mirrored queues of a vhost."""
    return paged(request, mirrored_queues(caller, recent(request), vhost))


@router.get("/copies")
def copies_by_node(request: Request, caller: ManagementUser) -> ListReply:
    """By node, the copies of the mirrored queues of all vhosts that the user sees."""
    return listed(request, _by_node(mirrored_queues(caller, recent(request))))


@router.get("/copies/{vhost:segment}")
def copies_of_vhost_by_node(request: Request, caller: VhostReader, vhost: str) -> ListReply:
    """By node, the copies of the mirrored queues of a vhost."""
    return listed(request, _by_node(mirrored_queues(caller, recent(request), vhost)))


@router.get("/mirrors/{vhost:segment}/{queue:segment}")
def mirrors_of_queue(request: Request, caller: VhostReader, vhost: str, queue: str) -> ObjectReply:
    """The copies of a queue with their lag, and what is lost if a node stops now."""
    status = caller.call(DescribeMirrors(vhost=vhost, queue=queue.encode()), MirrorStatus)
    return single(request, msgspec.to_builtins(status))


def _by_node(queues: list[Row]) -> list[Row]:
    """Masters and mirrors of each node, and the masters that no other copy in sync could replace.

    A queue that is down has no master.
    """
    served = [row for row in queues if row["state"] != "down"]
    masters = Counter([row["leader"] for row in served])
    in_sync: Counter[str] = Counter()
    lagging: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for row in queues:
        synchronised = mirrors_in_sync(row)
        in_sync.update(synchronised)
        lagging.update(set(row["slave_nodes"]).difference(synchronised))
    for row in served:
        alone[row["leader"]] += not mirrors_in_sync(row)
    return [
        {
            "name": node,
            "masters": masters[node],
            "mirrors_in_sync": in_sync[node],
            "mirrors_not_in_sync": lagging[node],
            "masters_alone": alone[node],
        }
        for node in sorted({*masters, *in_sync, *lagging})
    ]
