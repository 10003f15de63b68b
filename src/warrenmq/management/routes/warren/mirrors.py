"""Mirrored queues: the nodes that have copies, and how far these are behind."""

import msgspec
from fastapi import APIRouter, Request

from warrenmq.admin.protocol.mirrors import DescribeMirrors, MirrorStatus
from warrenmq.management.access import ManagementUser, VhostReader
from warrenmq.management.objects.listings import rows_of_vhosts, vhosts_of
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/warren/mirrors")

_COLUMNS = (
    "name", "type", "state", "leader", "members", "online", "slave_nodes",
    "synchronised_slave_nodes", "recoverable_slaves",
)  # fmt: skip


@router.get("")
def all_mirrored_queues(request: Request, caller: ManagementUser) -> ListReply:
    """The mirrored queues of all vhosts that the user sees."""
    return listed(request, _mirrored(caller, None))


@router.get("/{vhost:segment}")
def mirrored_queues_of_vhost(request: Request, caller: VhostReader, vhost: str) -> ListReply:
    """The mirrored queues of a vhost."""
    return listed(request, _mirrored(caller, vhost))


@router.get("/{vhost:segment}/{queue:segment}")
def mirrors_of_queue(request: Request, caller: VhostReader, vhost: str, queue: str) -> ObjectReply:
    """The copies of a queue with their lag, and what is lost if a node stops now."""
    status = caller.call(DescribeMirrors(vhost=vhost, queue=queue.encode()), MirrorStatus)
    return single(request, msgspec.to_builtins(status))


def _mirrored(caller: Caller, vhost: str | None) -> list[Row]:
    rows = rows_of_vhosts(caller, "queues", _COLUMNS, vhosts_of(caller, vhost))
    return [row for row in rows if row["slave_nodes"] is not None]
