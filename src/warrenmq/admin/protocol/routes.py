"""Request and reply of the admin protocol about the way that a message would take."""

from msgspec import Struct

from warrenmq.admin.protocol.fields import ShortStr


class TryRoute(Struct, tag="try_route", forbid_unknown_fields=True, frozen=True):
    """Find the queues of a message that nobody publishes. Reply: RouteTried.

    `properties`: the block of all properties, from the flag word on. The session needs the right
    to read the exchange, as it needs to bind a queue there.
    """

    exchange: ShortStr
    routing_key: ShortStr
    properties: bytes


class RouteTried(Struct, tag="route_tried", frozen=True):
    """The queues in the order of the bindings; a delayed exchange routes as if the time had come.

    Of an exchange that draws by chance these are the queues of one draw.
    """

    queues: list[bytes]
