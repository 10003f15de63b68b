"""What a binding can lead to: a queue or an exchange.

Queues live in a layer above this one and extend `Destination`; routing needs no more of them than this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from warren.routing.binding import Binding


@mypyc_attr(allow_interpreted_subclasses=True)
class Destination:
    """A queue or an exchange of one vhost. `durable`: does its definition survive a restart?

    `incoming` and `route_mark` belong to the vhost's Router.
    """

    def __init__(self, name: bytes, is_queue: bool) -> None:
        self.name: bytes = name
        self.is_queue: bool = is_queue
        self.durable: bool = False
        # Bindings that lead here, in the order they were made (a dict keeps it; a set does not).
        self.incoming: dict[Binding, None] = {}
        # Number of the last routing that met this destination: tells "once already" without a set per message.
        self.route_mark: i64 = 0
