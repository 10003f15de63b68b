"""Exchanges: the queues that a message would reach."""

from fastapi import APIRouter

from warrenmq.admin.protocol.routes import RouteTried, TryRoute
from warrenmq.management.access import VhostUser
from warrenmq.management.amqp import encodable
from warrenmq.management.bodies import Body, JsonBody
from warrenmq.management.messages import message_properties
from warrenmq.management.objects.exchanges import exchange_name
from warrenmq.management.rows import JsonReply
from warrenmq.vocabulary.names import name_text

router = APIRouter(prefix="/api/warren/exchanges")


@router.post("/{vhost:segment}/{exchange:segment}/route")
def try_route(caller: VhostUser, vhost: str, exchange: str, body: JsonBody) -> JsonReply:
    """The queues that a message with this `routing_key` and `properties` would reach.

    Nothing is published.
    """
    properties = message_properties(Body(body.table("properties")))
    with encodable():
        encoded = b"".join(properties.encode())
    asked = TryRoute(
        exchange=exchange_name(exchange).encode(),
        routing_key=body.text("routing_key").encode(),
        properties=encoded,
    )
    with caller.session(vhost) as call:
        found = call(asked, RouteTried)
    return JsonReply({"queues": [name_text(queue) for queue in found.queues]})
