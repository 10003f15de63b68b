"""A mirror in memory, fed by a queue's operation feed and compared with the queue after every step.

The mirror knows what a mirror on another node would know. It begins with the messages that the
queue has in memory. Messages that are on disk at that moment are unknown, and are compared only
once they come to memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.models.messages import Violation
from warrenmq.queues.backing.operation_feed import OperationFeed
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.store.model.runs import Runs, contains, merge_runs


@dataclass
class Copied:
    """One message as the mirror has it."""

    # (address, properties, body); None while the queue has the content on disk only.
    content: tuple[bytes, bytes, bytes] | None
    expiry_ms: int
    # The message was delivered or reserved at some time.
    is_delivered: bool
    # The message is unacked: delivered or reserved, and not settled.
    is_out: bool


class MirrorModel(OperationFeed):
    """The mirror of `queue`."""

    def __init__(self, queue: Queue) -> None:
        backing = queue.backing
        self.name = queue.name.decode()
        self.messages: dict[int, Copied] = {}
        delta = backing.ready.delta
        # Seq ids of the ready messages that were on disk when the mirror began: [first, end).
        self._unknown = (int(delta.start), int(delta.end)) if delta.count > 0 else (0, 0)
        for entry in _entries(queue):
            self.messages[int(entry.seq)] = _copy(entry, entry.redelivered, False)
        for entry in backing.find_unacked(0, backing.ledger.next_seq):
            self.messages[int(entry.seq)] = _copy(entry, True, True)

    # -- what the queue tells ----------------------------------------------------------------------

    def published(self, entry: Entry) -> None:
        seq = int(entry.seq)
        if self.messages and seq <= max(self.messages):
            raise Violation(
                "mirror", f"{self.name}: {seq} is published behind {max(self.messages)}"
            )
        self.messages[seq] = _copy(entry, entry.redelivered, False)

    def delivered(self, seq: int) -> None:
        copied = self._expect(seq, "delivered")
        copied.is_delivered = copied.is_out = True

    def leaving(self, seq: int) -> None:
        # A message that just arrived may be new here.
        self.messages.setdefault(seq, Copied(None, 0, False, True)).is_out = True

    def returned(self, seq: int) -> None:
        copied = self._expect(seq, "returned")
        if not copied.is_out:
            raise Violation("mirror", f"{self.name}: {seq} is returned, but nobody has it")
        copied.is_out = False

    def put_back(self, seq: int) -> None:
        self.returned(seq)
        self.messages[seq].is_delivered = False

    def settled(self, seq: int, reason: int) -> None:
        self.messages.pop(seq, None)

    def readers_changed(self) -> None:
        """Reader groups are none of its business."""

    def receipts_changed(self) -> None:
        """Nor are receipts."""

    def settled_runs(self, runs: Runs, reason: int) -> None:
        runs = merge_runs(list(runs))
        for seq in [seq for seq in self.messages if contains(runs, seq)]:
            del self.messages[seq]

    def _expect(self, seq: int, what: str) -> Copied:
        copied = self.messages.get(seq)
        if copied is None:
            if not self._unknown[0] <= seq < self._unknown[1]:
                raise Violation("mirror", f"{self.name}: {seq} is {what}, but it is not there")
            copied = self.messages[seq] = Copied(None, 0, True, True)
        return copied

    # -- comparison --------------------------------------------------------------------------------

    def compare(self, queue: Queue) -> None:
        """Violation unless queue and mirror have the same messages: contents, order, flags."""
        backing = queue.backing
        ready = _entries(queue)
        out = sorted(backing.find_unacked(0, backing.ledger.next_seq))
        for entry in ready:
            self._compare_entry(entry, False)
        for entry in out:
            self._compare_entry(entry, True)
        if any(ready[place].seq >= ready[place + 1].seq for place in range(len(ready) - 1)):
            raise Violation("mirror", f"{self.name}: ready messages are not in order")
        delta = backing.ready.delta
        seen = {int(entry.seq) for entry in ready + out}
        on_disk = [seq for seq in self.messages if seq not in seen]
        for seq in on_disk:
            if (
                not (delta.count > 0 and delta.start <= seq < delta.end)
                or self.messages[seq].is_out
            ):
                raise Violation(
                    "mirror", f"{self.name}: the queue has {seq} no more, and never told"
                )
        first, end = self._unknown
        overlaps = delta.count > 0 and delta.start < end and first < delta.end
        # The queue counts damaged messages before it knows which ones are damaged and were ready.
        if not overlaps and not delta.is_uncertain and len(on_disk) != delta.count:
            raise Violation(
                "mirror",
                f"{self.name}: the queue has {delta.count} on disk, the copy {len(on_disk)}",
            )

    def _compare_entry(self, entry: Entry, is_out: bool) -> None:
        seq = int(entry.seq)
        copied = self.messages.get(seq)
        if copied is None:
            if not self._unknown[0] <= seq < self._unknown[1]:
                raise Violation("mirror", f"{self.name}: the queue has {seq}, and never told")
            copied = self.messages[seq] = _copy(entry, entry.redelivered or is_out, is_out)
        if copied.is_out != is_out:
            raise Violation(
                "mirror", f"{self.name}: {seq} is out: {is_out}, with the copy {copied.is_out}"
            )
        if not is_out and entry.redelivered != copied.is_delivered:
            raise Violation(
                "mirror",
                f"{self.name}: {seq} is redelivered: {entry.redelivered}, with the copy {copied.is_delivered}",
            )
        if not entry.has_content:
            return
        now = _copy(entry, False, False)
        if copied.content is None:
            copied.content, copied.expiry_ms = now.content, now.expiry_ms
        elif (copied.content, copied.expiry_ms) != (now.content, now.expiry_ms):
            raise Violation("mirror", f"{self.name}: {seq} is another message than the copy's")


def follow(mirrors: dict[int, MirrorModel], queues: list[Queue]) -> None:
    """Compare each queue with its mirror, and begin the missing mirrors; keys are queue ids."""
    for queue in queues:
        mirror = mirrors.get(queue.id)
        if mirror is None:
            mirror = mirrors[queue.id] = MirrorModel(queue)
            queue.backing.feed = mirror
        mirror.compare(queue)
    live = {int(queue.id) for queue in queues}
    for queue_id in [queue_id for queue_id in mirrors if queue_id not in live]:
        del mirrors[queue_id]


def _entries(queue: Queue) -> list[Entry]:
    ready = queue.backing.ready
    return [ready.at(place) for place in range(ready.entry_count)]


def _copy(entry: Entry, is_delivered: bool, is_out: bool) -> Copied:
    message = entry.message
    content = (message.address, message.properties, message.body) if entry.has_content else None
    return Copied(content, int(entry.expiry_ms), bool(is_delivered), is_out)
