"""Queues: what they are, their messages, and what may be done with them."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol.control import Counted, Done
from warrenmq.admin.protocol.mirrors import CancelSync, SyncQueue
from warrenmq.management.access import Administrator, ManagementUser, VhostReader, VhostUser
from warrenmq.management.amqp import channel_of, has_queue, without_line_ends
from warrenmq.management.bodies import JsonBody
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.messages import get_messages
from warrenmq.management.objects.bindings import bindings
from warrenmq.management.objects.channels import consumers
from warrenmq.management.objects.listings import named
from warrenmq.management.objects.queue_filters import queue_filters
from warrenmq.management.objects.queues import QueueTable, queue_called
from warrenmq.management.recent_listings import recent
from warrenmq.management.rows import (
    JsonReply,
    ListReply,
    ObjectReply,
    PageReply,
    listed,
    paged,
    single,
)
from warrenmq.management.sessions import Caller, refusal
from warrenmq.management.shown import FiguresOf, Shown
from warrenmq.vocabulary.error_codes import NOT_MIRRORED

router = APIRouter(prefix="/api")


@router.get("/queues/detailed")
@router.get("/queues")
def all_queues(request: Request, caller: ManagementUser, shown: FiguresOf) -> PageReply:
    """The queues of all vhosts that the user sees, with their counters."""
    return _page(request, caller, shown, None)


@router.get("/queues/{vhost:segment}")
def queues_of_vhost(
    request: Request, caller: VhostReader, shown: FiguresOf, vhost: str
) -> PageReply:
    """The queues of a vhost."""
    return _page(request, caller, shown, vhost)


def _page(request: Request, caller: Caller, shown: Shown, vhost: str | None) -> PageReply:
    """The queues that the query asks for, of which only those are made that are shown."""
    path = request.query_params.get("sort", "").split(".")
    table = QueueTable(caller, recent(request), vhost, "page" not in request.query_params)
    value = table.value(path) or shown.queue_figure(path) or (lambda _sketch: None)
    filters = queue_filters(request.query_params, table, shown)
    return paged(
        request, table.sketches(), shown.queue, value, filters, table.complete, is_ordered=True
    )


@router.get("/queues/{vhost:segment}/{queue:segment}")
def one_queue(
    request: Request, caller: VhostReader, shown: FiguresOf, vhost: str, queue: str
) -> ObjectReply:
    """One queue, with its consumers."""
    row = shown.queue(queue_called(caller, vhost, queue))
    row["consumer_details"] = consumers(caller, vhost, [queue])
    return single(request, row | {"incoming": [], "deliveries": []})


@router.get("/queues/{vhost:segment}/{queue:segment}/bindings")
def bindings_of_queue(request: Request, caller: VhostReader, vhost: str, queue: str) -> ListReply:
    """The bindings of a queue, that of the default exchange first."""
    named(caller.rows("queues", ["name"], vhost, names=[queue]), queue)
    rows = [
        row
        for row in bindings(caller, vhost, [queue])
        if row["destination_type"] == "queue" and row["destination"] == queue
    ]
    return listed(request, rows)


@router.put("/queues/{vhost:segment}/{queue:segment}")
def declare_queue(caller: VhostUser, vhost: str, queue: str, body: JsonBody) -> Response:
    """Declare a queue: 201, or 204 if it is there already with the same arguments."""
    durable, auto_delete = body.flag("durable"), body.flag("auto_delete")
    arguments = body.table("arguments")
    node = body.text("node")
    if node and node != caller.description.node:
        # A policy or the argument x-queue-master-locator says where a queue goes.
        raise bad_request(f"queues are declared on the node that is asked, not on '{node}'")
    name = without_line_ends(queue)
    with channel_of(caller, vhost) as channel:
        status = 204 if has_queue(channel, name) else 201
        channel.queue_declare(
            name, durable=durable, auto_delete=auto_delete, arguments=arguments or None
        )
    return Response(status_code=status)


@router.delete("/queues/{vhost:segment}/{queue:segment}")
def delete_queue(request: Request, caller: VhostUser, vhost: str, queue: str) -> Response:
    """Delete a queue; `if-empty=true` and `if-unused=true` refuse what the names say."""
    query = request.query_params
    with channel_of(caller, vhost) as channel:
        if not has_queue(channel, queue):
            raise not_found()
        channel.queue_delete(
            queue,
            if_empty=query.get("if-empty") == "true",
            if_unused=query.get("if-unused") == "true",
        )
    return Response(status_code=204)


@router.delete("/queues/{vhost:segment}/{queue:segment}/contents")
def purge_queue(caller: VhostUser, vhost: str, queue: str) -> Response:
    """Drop the ready messages of a queue."""
    with channel_of(caller, vhost) as channel:
        if not has_queue(channel, queue):
            raise not_found()
        channel.queue_purge(queue)
    return Response(status_code=204)


@router.post("/queues/{vhost:segment}/{queue:segment}/get")
def get_from_queue(caller: VhostUser, vhost: str, queue: str, body: JsonBody) -> JsonReply:
    """Get messages of a queue, and settle them as `ackmode` says."""
    return JsonReply(get_messages(caller, vhost, queue, body))


@router.post("/queues/{vhost:segment}/{queue:segment}/actions")
def act_on_queue(caller: Administrator, vhost: str, queue: str, body: JsonBody) -> Response:
    """Begin or stop the synchronisation of a queue's mirrors: `sync` or `cancel_sync`."""
    body.require("action")
    action = body.text("action")
    if action == "sync":
        _synchronise(caller, vhost, queue)
    elif action == "cancel_sync":
        caller.call(CancelSync(vhost=vhost, queue=queue.encode()), Counted)
    else:
        raise bad_request(["unknown", action])
    return Response(status_code=204)


def _synchronise(caller: Caller, vhost: str, queue: str) -> None:
    with caller.session() as call:
        try:
            call.client.request(SyncQueue(vhost=vhost, queue=queue.encode()), Done)
        except AdminRefusedError as error:
            # A queue without mirrors has nothing to synchronise, as in RabbitMQ.
            if error.code != NOT_MIRRORED:
                raise refusal(error) from None


@router.get("/aliveness-test/{vhost:segment}")
def aliveness(caller: VhostUser, vhost: str) -> JsonReply:
    """Declare the queue `aliveness-test`, publish to it and get the message back."""
    name = "aliveness-test"
    with channel_of(caller, vhost) as channel:
        channel.queue_declare(name)
        channel.basic_publish("", name, b"test_message")
        # Another test may have taken it: the broker is alive all the same.
        channel.basic_get(name, auto_ack=True)
    return JsonReply({"status": "ok"})
