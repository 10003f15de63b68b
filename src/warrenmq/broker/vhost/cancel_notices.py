"""Consumers of deleted queues, until their client is notified (protocol 9.2)."""


class CancelNotices:
    """Consumer tags to send basic.cancel for.

    `is_deferred`: the channel deletes a queue itself, so the notices wait until its reply is sent.
    """

    def __init__(self) -> None:
        self.is_deferred: bool = False
        self._tags: list[bytes] = []

    def add(self, tag: bytes) -> None:
        """Add the consumer `tag`, whose queue was deleted."""
        self._tags.append(tag)

    def take(self) -> list[bytes]:
        """Remove and return all tags that still need a notice, in order."""
        tags = self._tags
        self._tags = []
        return tags
