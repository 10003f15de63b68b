"""The broadcasts of one sender, as a member knows them.

Broadcasts are numbered from 0 on. `pending` are those that are known and not acked; they can be
sent again when the ring changes. Invariants: `last_ack <= sent_pub <= last_pub`, and `pending` has
the numbers from `last_ack + 1` to `last_pub`.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.cluster.ring.frames import MalformedRingFrame, RingEntry
from warrenmq.cluster.ring.view import MemberId


@mypyc_attr(native_class=True, acyclic=True)
class SenderLog:
    """The broadcasts of `sender`."""

    def __init__(self, sender: MemberId) -> None:
        self.sender: MemberId = sender
        self.pending: list[bytes] = []
        # Bytes of `pending`.
        self.pending_bytes: i64 = 0
        self.last_pub: i64 = -1
        self.last_ack: i64 = -1
        # The last broadcast that the owner has received.
        self.received: i64 = -1
        # Broadcasts and acks up to these numbers were sent to the right.
        self.sent_pub: i64 = -1
        self.sent_ack: i64 = -1

    def append(self, payload: bytes) -> i64:
        """Append the next broadcast; returns its number."""
        self.pending.append(payload)
        self.pending_bytes += len(payload)
        self.last_pub += 1
        return self.last_pub

    def check(self, entry: RingEntry) -> None:
        """Raise MalformedRingFrame if `entry` leaves out broadcasts that are not known yet.

        A neighbour drops a broadcast when it is acked: everyone has it then.
        """
        if entry.first > self.last_pub + 1:
            raise MalformedRingFrame(
                f"broadcasts from {entry.first} on of {self.sender!r} follow {self.last_pub}"
            )

    def merge(self, entry: RingEntry) -> list[bytes]:
        """Learn what `entry` says, which was checked; returns the broadcasts that are new."""
        fresh: list[bytes] = []
        if entry.last > self.last_pub:
            fresh = entry.pubs[self.last_pub + 1 - entry.first :]
            for payload in fresh:
                self.append(payload)
        self.ack(entry.acked)
        return fresh

    def adopt(self, entry: RingEntry) -> None:
        """Begin, as a newcomer, with what the left neighbour has pending."""
        self.last_pub = entry.first - 1
        self.last_ack = entry.first - 1
        self.received = entry.first - 1
        self.sent_pub = entry.first - 1
        self.sent_ack = entry.first - 1
        for payload in entry.pubs:
            self.append(payload)

    def ack(self, upto: i64) -> list[bytes]:
        """Drop all broadcasts up to the number `upto`, which is known; returns them."""
        count = upto - self.last_ack
        if count <= 0:
            return []
        acked = self.pending[:count]
        del self.pending[:count]
        for payload in acked:
            self.pending_bytes -= len(payload)
        self.last_ack = upto
        return acked

    def news(self) -> RingEntry | None:
        """Take the entry that the right neighbour lacks, as sent; None if it has all."""
        if self.sent_pub == self.last_pub and self.sent_ack == self.last_ack:
            return None
        first: i64 = self.sent_pub + 1
        entry = RingEntry(
            self.sender, first, self.pending[self.sent_pub - self.last_ack :], self.last_ack
        )
        self.note_sent()
        return entry

    def everything(self) -> RingEntry:
        """Everything that is known, and note it as sent."""
        self.note_sent()
        return RingEntry(self.sender, self.last_ack + 1, self.pending.copy(), self.last_ack)

    def note_sent(self) -> None:
        """Note that the right neighbour has been sent everything that is known, or that none is."""
        self.sent_pub = self.last_pub
        self.sent_ack = self.last_ack
