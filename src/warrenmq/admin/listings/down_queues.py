"""The rows of queues whose node is down: what this node knows of them.

RabbitMQ shows name, pid and state; here the columns of the definition have values too, and those of
the copies of a mirrored queue. All others are empty. The pid names the node; the number in it is 0.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from warrenmq.admin.listings.columns import Columns, ListingOf, chosen, table_value, vhost_of
from warrenmq.admin.listings.mirrors import COPY_COLUMNS, MIRROR_COLUMNS
from warrenmq.admin.protocol.control import List
from warrenmq.admin.protocol.queue_columns import QUEUE_COLUMNS, Cost, costs_of
from warrenmq.broker.broker import Broker
from warrenmq.broker.mirrors import MirrorFacts
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.arguments import CLASSIC, QUORUM
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.vocabulary.names import name_text


@dataclass(frozen=True, slots=True)
class DownQueue:
    """A queue that lives on a node to which there is no link; `copies`: see `ListedQueue`."""

    vhost: Vhost
    queue: RemoteQueue
    copies: MirrorFacts | None = None

    def is_quorum(self) -> bool:
        """Whether the queue was declared as a quorum queue."""
        return self.queue.definition.settings.traits.is_quorum

    def node(self) -> str:
        """The queue's node."""
        return name_text(self.queue.home.name)

    def of_copies(self, name: str) -> Any:
        """A column about the copies; a queue without mirrors has one, on the node that is down."""
        if self.copies is not None:
            return COPY_COLUMNS[name](self.copies)
        alone = {"leader": self.node(), "members": [self.node()], "online": []}
        return alone.get(name) if self.is_quorum() else None

    def effective_definition(self) -> dict[str, Any] | None:
        """The definition that results from the policy and the operator policy of the queue."""
        policies = self.vhost.policies.of_queue(self.queue)
        return None if policies is None else policies.definition


def _find(
    lost: Collection[bytes], listed: Collection[bytes], broker: Broker, request: List
) -> Iterator[DownQueue]:
    vhost = vhost_of(broker, request)
    queues = chosen(vhost.remote_queues, request.names)
    mirrors = broker.mirrors if Cost.COPIES in costs_of(request.columns) else None

    def down(queue: RemoteQueue) -> DownQueue:
        copies = None if mirrors is None else mirrors.facts_of(vhost.name, queue.name)
        # Whatever the group says: this node cannot use the queue.
        return DownQueue(vhost, queue, None if copies is None else copies._replace(is_down=True))

    return (
        down(queue)
        for queue in queues
        if queue.name not in listed and (queue.home.session is None or queue.name in lost)
    )


def _of_copies(name: str) -> Callable[[DownQueue], Any]:
    return lambda each: each.of_copies(name)


def _of_mirrors(name: str) -> Callable[[DownQueue], Any]:
    value = MIRROR_COLUMNS[name]
    return lambda each: None if each.copies is None else value(each.copies)


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
    **{name: _of_copies(name) for name in COPY_COLUMNS if name != "state"},
    **{name: _of_mirrors(name) for name in MIRROR_COLUMNS},
}


def _none(_listed: DownQueue) -> None:
    return None


_COLUMNS: Columns[DownQueue] = {name: _KNOWN.get(name, _none) for name in QUEUE_COLUMNS}


def down_queues(lost: Collection[bytes], listed: Collection[bytes]) -> ListingOf[DownQueue]:
    """The listing of queues whose node is down, and of those named `lost`, without `listed`."""
    return ListingOf(_COLUMNS, partial(_find, lost, listed))
