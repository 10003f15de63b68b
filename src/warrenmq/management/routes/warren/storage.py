"""The stores: how much of their files is needed, per vhost and queue."""

from typing import Any, get_args

import msgspec
from fastapi import APIRouter, Request

from warrenmq.admin.protocol.figures import (
    DescribeNode,
    ListQueues,
    NodeStatus,
    QueueList,
    QueueStatus,
)
from warrenmq.admin.protocol.stores import (
    CompactionBegun,
    Compactions,
    CompactStores,
    DescribeCompactions,
    DescribeFiles,
    DescribeSegments,
    QueueSegment,
    QueueSegments,
    StoreFiles,
    StoreName,
)
from warrenmq.management.access import Administrator, Monitor, VhostUser
from warrenmq.management.bodies import JsonBody
from warrenmq.management.cluster_sessions import session_at_home
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.objects.listings import named, rows_of_vhosts
from warrenmq.management.routes.nodes import nodes
from warrenmq.management.rows import (
    JsonReply,
    ObjectReply,
    Row,
    asked_page,
    page_count,
    single,
)
from warrenmq.management.shown import FiguresOf
from warrenmq.vocabulary.distribution import DURATION_BOUNDS_NS

router = APIRouter(prefix="/api/warren")


@router.get("/storage")
def storage_of_node(request: Request, caller: Monitor, shown: FiguresOf) -> ObjectReply:
    """The stores of the asked node: journal, indexes, contents, checkpoints and bytes written.

    A range (`node_stats_age`, `node_stats_incr`) adds the `history` of syncs, bytes written and
    memory, by interval; `sync_bounds` (ns) are those of its `syncs`.
    """
    row: Row = msgspec.to_builtins(caller.call(DescribeNode(), NodeStatus))
    del row["type"]
    history = shown.storage(row["node"])
    if history is not None:
        row |= {"sync_bounds": DURATION_BOUNDS_NS, "history": history}
    return single(request, row)


@router.post("/storage/compact")
def compact(caller: Administrator, body: JsonBody) -> JsonReply:
    """Begin to copy the content files with garbage; returns what is to be copied.

    `vhost`, `store` (persistent or transient) and `node` choose some of them. `GET storage` has the
    files that are left.
    """
    store = next((each for each in get_args(StoreName) if each == body.text("store")), None)
    if body.has("store") and store is None:
        raise bad_request("store must be persistent or transient")
    node = body.text("node") or None
    if node is not None:
        named(nodes(caller), node)
    request = CompactStores(vhost=body.text("vhost") or None, store=store, node=node)
    row: Row = msgspec.to_builtins(caller.call(request, CompactionBegun))
    del row["type"]
    return JsonReply(row)


@router.get("/storage/{vhost:segment}")
def storage_of_vhost(request: Request, caller: VhostUser, vhost: str) -> ObjectReply:
    """The store of a vhost at the asked node."""
    with caller.session(vhost) as call:
        # A monitor gets all vhosts.
        vhosts = call(DescribeNode(), NodeStatus).vhosts
    for status in vhosts:
        if status.vhost == vhost:
            return single(request, msgspec.to_builtins(status))
    raise not_found()


@router.get("/storage/{vhost:segment}/files")
def files_of_vhost(request: Request, caller: VhostUser, vhost: str) -> ObjectReply:
    """The files of a vhost's store at the asked node.

    Each is `[number, bytes, needed, written, copied, pinned, readers]`. At most 4096 each of the
    journal, of the journal files that stay, and of both content stores.
    """
    row: Row = msgspec.to_builtins(caller.call(DescribeFiles(vhost=vhost), StoreFiles))
    del row["type"]
    return single(request, row)


@router.get("/storage/{vhost:segment}/compactions")
def compactions_of_vhost(request: Request, caller: VhostUser, vhost: str) -> ObjectReply:
    """The last 512 compactions of a vhost's store at the asked node, since the start of it."""
    row: Row = msgspec.to_builtins(caller.call(DescribeCompactions(vhost=vhost), Compactions))
    del row["type"]
    return single(request, row)


@router.get("/queues/{vhost:segment}/{queue:segment}/storage")
def storage_of_queue(
    request: Request, caller: VhostUser, shown: FiguresOf, vhost: str, queue: str
) -> ObjectReply:
    """The messages of a queue by part (q1 to q4, delta) and form (alpha to delta), and rates.

    A range (`lengths_age`, `lengths_incr`) adds the `history` of the forms.
    """
    row = named(rows_of_vhosts(caller, "queues", ["name", "id"], [vhost], [queue]), queue)
    if row["id"] is None:
        raise not_found()
    with session_at_home(caller, vhost, queue) as call:
        found = call(ListQueues(after=row["id"] - 1, max_queues=1), QueueList).queues
    for status in found:
        if status.id == row["id"]:
            history = shown.forms(vhost, queue)
            added = {} if history is None else {"history": history}
            return single(request, _row(status) | added)
    # Deleted in between.
    raise not_found()


@router.get("/queues/{vhost:segment}/{queue:segment}/storage/segments")
def segments_of_queue(request: Request, caller: VhostUser, vhost: str, queue: str) -> ObjectReply:
    """A page of the segments of a queue's index, the oldest messages first.

    Each is `[level, number, messages, acked, pending, bytes, state]`; `unindexed` messages are in
    none of them yet.
    """
    page, size = asked_page(request.query_params)
    asked = DescribeSegments(vhost, queue.encode(), skip=(page - 1) * size, count=size)
    with session_at_home(caller, vhost, queue) as call:
        found = call(asked, QueueSegments)
    pages = page_count(page, size, found.total)
    row: Row = {
        "items": [_segment(each) for each in found.segments],
        "page": page,
        "page_count": pages,
        "page_size": size,
        "total_count": found.total,
        "segment_entries": found.segment_entries,
        "unindexed": found.unindexed,
    }
    return single(request, row)


def _segment(segment: QueueSegment) -> list[int | str]:
    """A segment as the API shows it."""
    state = "full" if segment.is_full else "part"
    return [
        segment.level,
        segment.number,
        segment.entries,
        segment.entries - segment.pending,
        segment.pending,
        segment.size_bytes,
        "rewriting" if segment.is_rewritten else state,
    ]


def _row(status: QueueStatus) -> Row:
    row: dict[str, Any] = msgspec.to_builtins(status, builtin_types=(bytes,))
    del row["name_raw"]
    return row
