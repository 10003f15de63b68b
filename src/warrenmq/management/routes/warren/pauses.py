"""Pauses of queues: stop the deliveries of a queue, and resume them."""

from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.admin.protocol.control import Done, PauseQueue, ResumeQueue
from warrenmq.management.access import VhostUser

router = APIRouter(prefix="/api/warren/queues")


@router.post("/{vhost:segment}/{queue:segment}/pause")
def pause(caller: VhostUser, vhost: str, queue: str) -> Response:
    """Let a queue deliver nothing until it is resumed; publishes, acks and expiry continue."""
    caller.call(PauseQueue(vhost=vhost, queue=queue.encode()), Done)
    return Response(status_code=204)


@router.post("/{vhost:segment}/{queue:segment}/resume")
def resume(caller: VhostUser, vhost: str, queue: str) -> Response:
    """Let a queue deliver again, which it does at once."""
    caller.call(ResumeQueue(vhost=vhost, queue=queue.encode()), Done)
    return Response(status_code=204)
