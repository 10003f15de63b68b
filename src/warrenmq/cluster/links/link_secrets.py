"""The secrets that the nodes of a cluster prove to each other."""

from typing import NamedTuple


class LinkSecrets(NamedTuple):
    """The secrets that a node knows: the current one and, during a rotation, the one before.

    `number` counts the rotations up to the current one. Two nodes use the newest secret that both
    have heard of, so that a rotation cuts nobody off who hears of it a moment later.
    """

    number: int
    current: bytes
    # b"": it is out of use.
    previous: bytes = b""

    def shared_with(self, newest: int) -> bytes:
        """The secret to use with a node whose newest one has the number `newest`; b"": none."""
        if newest >= self.number:
            return self.current
        return self.previous if newest == self.number - 1 else b""
