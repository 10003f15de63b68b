"""The rows of queues whose node is down: what this node knows of them.

RabbitMQ shows name, pid and state; here the columns of the definition have values too. All others
are empty. The pid names the node; the number in it is 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warrenmq.admin.control_protocol import List
from warrenmq.admin.listings.columns import Columns, ListingOf, table_value, vhost_of
from warrenmq.admin.listings.queues import QUEUES
from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.arguments import CLASSIC, QUORUM
from warrenmq.queues.remote_queue import RemoteQueue
from warrenmq.vocabulary.names import name_text


@dataclass(frozen=True, slots=True)
class DownQueue:
    """A queue that lives on a node to which there is no link."""

    vhost: Vhost
    queue: RemoteQueue

    def is_quorum(self) -> bool:
        """Whether the queue was declared as a quorum queue."""
        return self.queue.definition.settings.traits.is_quorum

    def node(self) -> str:
        """The queue's node."""
        return name_text(self.queue.home.name)

    def effective_definition(self) -> dict[str, Any] | None:
        """What the policy and the operator policy of the queue give together."""
        policies = self.vhost.policies.of_queue(self.queue)
        return None if policies is None else policies.definition


def _find(broker: Broker, request: List) -> Iterator[DownQueue]:
    vhost = vhost_of(broker, request)
    queues = list(vhost.remote_queues.values())
    return (DownQueue(vhost, queue) for queue in queues if queue.home.session is None)


_KNOWN: Columns[DownQueue] = {
    "name": lambda each: name_text(each.queue.name),
    "vhost": lambda each: name_text(each.vhost.name),
    "pid": lambda each: f"<{each.node()}.2.0.0>",
    "type": lambda each: QUORUM if each.is_quorum() else CLASSIC,
    "state": lambda _each: "down",
    "durable": lambda each: each.queue.durable,
    "auto_delete": lambda each: each.queue.definition.auto_delete,
    "exclusive": lambda each: None if each.is_quorum() else each.queue.definition.owner is not None,
    "arguments": lambda each: table_value(each.queue.definition.arguments),
    "policy": lambda each: each.vhost.policies.policy_of(each.queue),
    "operator_policy": lambda each: each.vhost.policies.operator_policy_of(each.queue),
    "effective_policy_definition": DownQueue.effective_definition,
    "leader": lambda each: each.node() if each.is_quorum() else None,
    "members": lambda each: [each.node()] if each.is_quorum() else None,
    "online": lambda each: [] if each.is_quorum() else None,
}


def _none(_listed: DownQueue) -> None:
    return None


DOWN_QUEUES: ListingOf[DownQueue] = ListingOf(
    {name: _KNOWN.get(name, _none) for name in QUEUES.column_names}, _find
)
