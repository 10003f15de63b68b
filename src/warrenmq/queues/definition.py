"""A queue as it was declared; the settings that apply may differ (`Queue.settings`)."""

from dataclasses import dataclass

from mypy_extensions import i64

from warrenmq.queues.settings import QueueSettings


@dataclass(eq=False)
class QueueDefinition:
    """The declaration of one queue; it never changes.

    `id` is never used twice on this node. `owner`: the connection that declared an exclusive queue
    (None: not exclusive). `arguments`: the table body as it was sent, from which `settings` were
    made. `birth` tells the lives of one name in a cluster apart; 0: the node runs alone.
    """

    name: bytes
    id: i64
    durable: bool
    auto_delete: bool
    owner: object | None
    arguments: bytes
    settings: QueueSettings
    birth: i64 = 0
