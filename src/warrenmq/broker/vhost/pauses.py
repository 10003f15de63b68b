"""Pauses of queues: which queues of a vhost hand out nothing, until somebody resumes them.

A pause is a parameter of the vhost, of the component QUEUE_PAUSE. So it outlives starts and
crashes, and all nodes of a cluster know it: a new master of a mirrored queue is paused as well.

The name of the parameter is the key of the queue's life (`pause_key`), and its value is the queue's
name. A queue that is deleted and declared again begins another life, which nobody has paused; the
parameter that it leaves behind goes with the next change of a pause in the vhost.
"""

from __future__ import annotations

import json
from typing import Final

from warrenmq.broker.definitions.metadata import NO_BIRTH
from warrenmq.queues.definition import QueueDefinition

# The component of the parameters.
QUEUE_PAUSE: Final = "queue-pause"


def pause_key(definition: QueueDefinition) -> str:
    """The key of a queue's life: its birth in the cluster, or its id on a lone node."""
    if definition.birth != NO_BIRTH:
        return f"birth-{definition.birth}"
    return f"id-{definition.id}"


def pause_value(name: bytes) -> str:
    """The value of the parameter that pauses the queue `name`."""
    return json.dumps(name.decode("utf-8", "surrogateescape"))


def paused_name(value: str) -> bytes:
    """The name of the queue in a value of `pause_value`. Raises ValueError for any other value."""
    name: object = json.loads(value)
    if not isinstance(name, str):
        raise ValueError("the name of a queue must be a string")
    return name.encode("utf-8", "surrogateescape")
