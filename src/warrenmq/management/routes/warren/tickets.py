"""Tickets: a password for a short time, for pages and programs that keep no password."""

from fastapi import APIRouter

from warrenmq.admin.protocol.control import IssueTicket, Ticket
from warrenmq.management.access import ManagementUser
from warrenmq.management.rows import ObjectReply

router = APIRouter(prefix="/api/warren")


@router.post("/tickets")
def issue_ticket(caller: ManagementUser) -> ObjectReply:
    """A password of the caller's own that serves for some minutes, over HTTP and AMQP.

    A ticket may be exchanged for a new one until 12 hours after the login with the password. All
    tickets end with a new password.
    """
    reply = caller.call(IssueTicket(caller.password), Ticket)
    return ObjectReply(
        {
            "ticket": reply.ticket,
            "expires_in": reply.expires_in,
            "user": caller.user,
            "tags": caller.tags,
        }
    )
