"""What the oracle remembers of a group commit while it is on its way to the disk."""

from __future__ import annotations

from warren.testing.message_models import Copy
from warren.testing.sink_records import StagedMessage


class CommitToken:
    """What one group commit makes durable."""

    def __init__(
        self, published: list[Copy], settled: list[Copy], moved: list[StagedMessage], version: int
    ) -> None:
        self.published = published
        self.settled = settled
        # Staged messages that came to their queues.
        self.moved = moved
        # Of the definitions (`StoredDefinitions.version`).
        self.version = version
