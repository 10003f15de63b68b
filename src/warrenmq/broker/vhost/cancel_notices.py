"""The consumers of a channel whose queues were deleted, and whose client is to hear of it (9.2)."""


class CancelNotices:
    """Tags that basic.cancel is to name. `is_held`: the channel deletes a queue itself, and its reply comes first."""

    def __init__(self) -> None:
        self.is_deferred: bool = False
        self._tags: list[bytes] = []

    def add(self, tag: bytes) -> None:
        """The queue of consumer `tag` was deleted."""
        self._tags.append(tag)

    def take(self) -> list[bytes]:
        """All tags that no notice was sent for, in order."""
        tags = self._tags
        self._tags = []
        return tags
