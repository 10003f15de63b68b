"""Names the priority queues that match a group's pattern and that no group can read."""

import logging
from collections.abc import Sequence
from typing import Final

from warrenmq.broker.definitions.rights import QUEUE, Rights
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.groups import ReaderGroup
from warrenmq.vocabulary.names import name_text

_log: Final = logging.getLogger("warren.admin")


def pass_over(group: ReaderGroup, queues: Sequence[Queue], rights: Rights) -> list[bytes]:
    """The priority queues among `queues` that the group's pattern matches, by name.

    The log names each once, for as long as the node runs. Queues that the session may not read are
    left out.
    """
    if not group.pattern:
        return []
    found = [
        queue
        for queue in queues
        if group.passes_over(queue) and not rights.read_refusal(QUEUE, queue.name)
    ]
    new = [queue for queue in found if queue.id not in group.named_in_log]
    if new:
        group.named_in_log.update([queue.id for queue in new])
        _log.warning(
            "reader group '%s' passes over priority queues that match its pattern: %s",
            name_text(group.name),
            ", ".join(sorted([f"'{name_text(queue.name)}'" for queue in new])),
        )
    return sorted([queue.name for queue in found])
