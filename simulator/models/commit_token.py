"""The oracle's record of a group commit that is being written."""

from __future__ import annotations

from simulator.models.messages import Copy
from simulator.models.sink_records import StagedMessage


class CommitToken:
    """Everything that one group commit makes durable."""

    def __init__(
        self, published: list[Copy], settled: list[Copy], moved: list[StagedMessage], version: int
    ) -> None:
        self.published = published
        self.settled = settled
        # Staged messages that were published to their queues.
        self.moved = moved
        # Version of the definitions (`StoredDefinitions.version`).
        self.version = version
