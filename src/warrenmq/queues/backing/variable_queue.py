"""The variable queue: the ready messages of one queue, in five parts (S48-S73).

    publish -> q1 -> q2 -> delta -> q3 -> q4 -> deliver

The memory that a ready message takes depends on how far it has moved towards the disk:

    alpha   content and position in memory
    beta    content in the transient content store, position in memory: a large message that is not
            journaled
    gamma   content and position on disk, the position in memory as well
    delta   both on disk only: a range of seq ids with a count, whatever the number of messages

q1 and q4 hold alphas, q2 and q3 any message whose position is in memory. A small message that is
not in the index keeps its content in q2 and q3 too, since there is no copy elsewhere (C14). A
message enters at q4 while q3 and delta are empty, else at q1; it is taken from q4, then from q3. A
delivered message that is requeued returns to the place of its seq id.

This module knows the order, the places and the counts. `paging.py` decides which messages move
towards the disk, `loading.py` brings them back.

Invariants (S73, T50), asserted by `check`: q1 not empty => q3 or delta not empty; q2 not empty
=> delta not empty; every part ascends by seq id, and q4 < q3 < delta < q2 < q1; all counts are
exact. Delta not empty => q3 not empty holds only for a queue with consumers, and not during a load:
without consumers nothing is read ahead (`head_state`).
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.delta import UNKNOWN, Delta
from warrenmq.queues.backing.entry_deque import EntryDeque
from warrenmq.queues.entry import ALPHA, BETA, GAMMA, Entry
from warrenmq.queues.memory.account import ENTRY_BYTES, MESSAGE_BYTES
from warrenmq.store.model.message import INDEXED

# States of the head. EMPTY: there is no ready message.
EMPTY: Final = 0
# The head can be taken.
READY: Final = 1
# The head must be read from disk first.
LOADING: Final = 2

# `target_ram_count` of a queue that need not page; such a queue may also have as many betas.
UNLIMITED: Final = 1 << 62


class VariableQueue:
    """The ready messages of one queue, oldest first: `count` of them. Sizes in bytes."""

    def __init__(self) -> None:
        self.q1: EntryDeque = EntryDeque()
        self.q2: EntryDeque = EntryDeque()
        self.delta: Delta = Delta()
        self.q3: EntryDeque = EntryDeque()
        self.q4: EntryDeque = EntryDeque()
        # The part that a published entry joins: q4 or q1.
        self._young: EntryDeque = self.q4
        self.count: i64 = 0
        self.beta_count: i64 = 0
        self.beta_bytes: i64 = 0
        self.gamma_count: i64 = 0
        self.gamma_bytes: i64 = 0
        # Bytes of all bodies whose entries are in memory, with or without content.
        self._body_bytes: i64 = 0
        # Bytes of all contents whose entries are in memory, with or without content.
        self._content_bytes: i64 = 0

    # -- figures -----------------------------------------------------------------------------------

    @property
    def body_bytes(self) -> i64:
        """Bytes of the bodies of all ready messages."""
        return self._body_bytes + self.delta.body_bytes

    @property
    def entry_count(self) -> i64:
        """Messages whose position is in memory."""
        return self.count - self.delta.count

    @property
    def ram_count(self) -> i64:
        """Messages whose content is in memory, which are the alphas."""
        return self.count - self.delta.count - self.beta_count - self.gamma_count

    @property
    def alpha_bytes(self) -> i64:
        """Bytes of content in memory."""
        return self._content_bytes - self.beta_bytes - self.gamma_bytes

    @property
    def ram_bytes(self) -> i64:
        """Bytes of memory: content, ENTRY_BYTES a position, MESSAGE_BYTES a content in memory."""
        return self.alpha_bytes + ENTRY_BYTES * self.entry_count + MESSAGE_BYTES * self.ram_count

    @property
    def old_count(self) -> i64:
        """Entries in memory that are older than delta."""
        return self.q4.count + self.q3.count

    # -- publish and fetch -------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Add the youngest message (S61)."""
        self._young.append(entry)
        self.count += 1
        self._body_bytes += entry.body_bytes
        self._content_bytes += entry.content_bytes

    def head_state(self) -> i64:
        """EMPTY, READY, or LOADING when the oldest message or its content is on disk."""
        if self.q4.count > 0:
            return READY if self.q4.first().form == ALPHA else LOADING
        if self.q3.count > 0:
            return READY if self.q3.first().form == ALPHA else LOADING
        return LOADING if self.count > 0 else EMPTY

    def has_head_entry(self) -> bool:
        """Whether the position of the oldest message is in memory."""
        return self.q4.count > 0 or self.q3.count > 0

    def head(self) -> Entry:
        """The oldest entry; it must be in memory."""
        return self.q4.first() if self.q4.count > 0 else self.q3.first()

    def fetch(self) -> Entry:
        """Take the oldest entry (S70); it must be in memory."""
        if self.q4.count > 0:
            entry = self.q4.pop_left()
        else:
            entry = self.q3.pop_left()
            if self.q3.count == 0:
                self._keep_shape()
        self.count -= 1
        self._body_bytes -= entry.body_bytes
        self._content_bytes -= entry.content_bytes
        if entry.form != ALPHA:
            self._uncount_paged(entry)
        return entry

    def requeue(self, entries: list[Entry]) -> None:
        """Return entries (ascending seq ids) to the places of their seq ids."""
        if self._young is self.q4 and not _has_paged(entries):
            self.q4.put_back(entries)
            for entry in entries:
                self._count_in(entry)
            return
        parts: list[list[Entry]] = [[], [], [], []]
        lowest: i64 = 0
        for entry in entries:
            if self.delta.covers(entry.seq):
                self._enter_delta(entry)
                self.delta.first_expiry_ms = UNKNOWN
                continue
            # Parts only ever advance, so entries that fit between two parts keep their order.
            lowest = max(lowest, self._part_of(entry))
            parts[lowest].append(entry)
            self._count_in(entry)
        self.q4.put_back(parts[0])
        self.q3.put_back(parts[1])
        self.q2.put_back(parts[2])
        self.q1.put_back(parts[3])
        self._keep_shape()

    def _part_of(self, entry: Entry) -> i64:
        """The part an entry belongs to: 0 to 3 for q4, q3, q2, q1.

        A paged entry between two parts goes to q3 or q2.
        """
        seq = entry.seq
        if self.delta.count > 0 and seq >= self.delta.end:
            if self.q1.count > 0 and seq > self.q1.first_seq():
                return 3
            if self.q2.count > 0 and seq < self.q2.last_seq():
                return 2
            return 3 if entry.form == ALPHA else 2
        if self.delta.count == 0 and self.q1.count > 0 and seq > self.q1.first_seq():
            return 3
        if self.q3.count > 0 and seq > self.q3.first_seq():
            return 1
        if self.q4.count > 0 and seq < self.q4.last_seq():
            return 0
        return 0 if entry.form == ALPHA else 1

    # -- ranges ------------------------------------------------------------------------------------

    def index_of_seq(self, seq: i64) -> i64:
        """Number of entries in memory that are older than `seq`."""
        index: i64 = 0
        for part in (self.q4, self.q3, self.q2, self.q1):
            if part.count > 0 and part.last_seq() < seq:
                index += part.count
            else:
                place = part.index_of_seq(seq)
                if place < part.count:
                    return index + place
        return index

    def at(self, index: i64) -> Entry:
        """The entry that is `index` places behind the oldest one in memory."""
        # Without a loop over the parts, which would make a tuple for each entry.
        if index < self.q4.count:
            return self.q4.at(index)
        index -= self.q4.count
        if index < self.q3.count:
            return self.q3.at(index)
        index -= self.q3.count
        if index < self.q2.count:
            return self.q2.at(index)
        return self.q1.at(index - self.q2.count)

    def is_on_disk(self, from_seq: i64) -> bool:
        """Whether the oldest ready message with a seq id >= `from_seq` is in delta."""
        return (
            self.delta.count > 0
            and from_seq < self.delta.end
            and self.index_of_seq(from_seq) >= self.old_count
        )

    def run_length(self, index: i64) -> i64:
        """The number of entries in memory from place `index` up to delta or the end."""
        old_count = self.old_count
        if index < old_count and self.delta.count > 0:
            return old_count - index
        return self.entry_count - index

    def take_range(self, index: i64, count: i64) -> list[Entry]:
        """Take `count` entries out of memory, starting `index` places behind the oldest one."""
        taken: list[Entry] = []
        for part in (self.q4, self.q3, self.q2, self.q1):
            if index >= part.count:
                index -= part.count
                continue
            size: i64 = min(count, part.count - index)
            if size > 0:
                taken.extend(part.take_range(index, size))
                count -= size
            index = 0
        for entry in taken:
            self._count_out(entry)
        self._keep_shape()
        return taken

    def take_seqs(self, first: i64, last: i64) -> list[Entry]:
        """Take the entries with seq ids in [first, last] out of memory."""
        taken: list[Entry] = []
        for part in (self.q4, self.q3, self.q2, self.q1):
            taken.extend(part.take_seqs(first, last))
        for entry in taken:
            self._count_out(entry)
        self._keep_shape()
        return taken

    def contains(self, entry: Entry) -> bool:
        """Whether this very entry object is ready and in memory."""
        return self._part_with(entry) is not None

    def remove(self, entry: Entry) -> bool:
        """Take one entry out of its part; False when it is in none."""
        part = self._part_with(entry)
        if part is None:
            return False
        part.take_seqs(entry.seq, entry.seq)
        self._count_out(entry)
        self._keep_shape()
        return True

    def take_all(self) -> list[EntryDeque]:
        """Take all messages: returns the parts in memory, the youngest first, and forgets delta.

        A caller that needs the range of delta notes it before.
        """
        parts = [self.q1, self.q2, self.q3, self.q4]
        self.q1 = EntryDeque()
        self.q2 = EntryDeque()
        self.q3 = EntryDeque()
        self.q4 = EntryDeque()
        self._young = self.q4
        self.delta.clear()
        self.count = 0
        self.beta_count = 0
        self.beta_bytes = 0
        self.gamma_count = 0
        self.gamma_bytes = 0
        self._body_bytes = 0
        self._content_bytes = 0
        return parts

    def unindexed(self, from_seq: i64, end_seq: i64, limit: i64) -> list[Entry]:
        """At most `limit` entries of [from_seq, end_seq), ascending.

        `from_seq` must lie above delta.
        """
        found: list[Entry] = []
        for part in (self.q4, self.q3, self.q2, self.q1):
            place = part.index_of_seq(from_seq)
            while place < part.count and len(found) < limit:
                entry = part.at(place)
                if entry.seq >= end_seq:
                    return found
                found.append(entry)
                place += 1
        return found

    def paged_near_head(self, limit: i64, max_bytes: i64) -> list[Entry]:
        """Entries without content among the `limit` oldest.

        Their contents have at most `max_bytes` together, but at least one entry is returned.
        """
        found: list[Entry] = []
        size: i64 = 0
        index: i64 = 0
        end: i64 = min(limit, self.old_count)
        while index < end:
            entry = self.at(index)
            if entry.form != ALPHA:
                size += entry.content_bytes
                if size > max_bytes and len(found) > 0:
                    break
                found.append(entry)
            index += 1
        return found

    # -- sinking -----------------------------------------------------------------------------------

    def drop_content(self, entry: Entry) -> None:
        """Drop the content of a ready alpha, which is on disk: it becomes beta or gamma."""
        entry.drop_content()
        self._count_paged(entry)

    def take_content(self, entry: Entry) -> None:
        """Count a ready entry as alpha, as its content was loaded."""
        self._uncount_paged(entry)
        entry.form = ALPHA

    def on_indexed(self, entry: Entry) -> None:
        """Count a ready beta as gamma, as its position has moved to the index."""
        if entry.form == BETA:
            self._uncount_paged(entry)
            entry.form = GAMMA
            self._count_paged(entry)

    def push_q1(self) -> None:
        """Move the oldest of q1 to the young end of q3, or of q2 when delta is not empty."""
        entry = self.q1.pop_left()
        if self.delta.count == 0:
            self.q3.append(entry)
        else:
            self.q2.append(entry)

    def push_q4(self) -> None:
        """Move the youngest of q4 to the old end of q3 (S62)."""
        self.q3.append_left(self.q4.pop_right())
        self._keep_shape()

    def part_q4(self, keep: i64) -> None:
        """Move all but the `keep` oldest of q4 to q1; all other parts must be empty.

        The caller must move at least one entry out of q1 in the same step, which restores the
        invariant.
        """
        kept = self.q4.take(keep)
        self.q4, self.q1 = self.q1, self.q4
        for entry in kept:
            self.q4.append(entry)
        self._young = self.q1

    def push_old(self) -> None:
        """Move the youngest entry older than delta, which must be in the index, to delta."""
        entry = self.q3.pop_right() if self.q3.count > 0 else self.q4.pop_right()
        self._count_out(entry)
        delta = self.delta
        if delta.count == 0:
            delta.end = entry.seq + 1
        delta.start = entry.seq
        delta.first_expiry_ms = entry.expiry_ms
        self._enter_delta(entry)
        if self._young is self.q4:
            self._keep_shape()

    def push_young(self) -> None:
        """Move the oldest entry younger than delta, which must be in the index, to delta."""
        entry = self.q2.pop_left() if self.q2.count > 0 else self.q1.pop_left()
        self._count_out(entry)
        delta = self.delta
        if delta.count == 0:
            delta.start = entry.seq
            delta.first_expiry_ms = entry.expiry_ms
        delta.end = entry.seq + 1
        self._enter_delta(entry)

    def _enter_delta(self, entry: Entry) -> None:
        # The index has all live positions below its mark, so a load will find this one there.
        assert entry.journal_state == INDEXED
        # A load of this content may be under way: ALPHA tells it that no one waits for the content.
        entry.form = ALPHA
        self.delta.add(entry)
        self.count += 1

    # -- rising ------------------------------------------------------------------------------------

    def accept(self, entries: list[Entry], next_seq: i64) -> None:
        """Append loaded `entries` to q3.

        The load began at `delta.start`; delta then begins at `next_seq` (S72).
        """
        delta = self.delta
        for entry in entries:
            self.count -= delta.remove(entry)
            self.q3.append(entry)
            self._count_in(entry)
        delta.start = next_seq
        delta.first_expiry_ms = UNKNOWN
        if next_seq >= delta.end:
            self.count -= delta.count
            delta.clear()
        self._keep_shape()

    def lose_in_delta(self, lost: i64) -> None:
        """Note that `lost` messages, most likely of delta, are not in the index any more."""
        if self.delta.count > 0:
            self.count -= self.delta.lose(lost)

    def take_loaded(self, entries: list[Entry], first: i64) -> None:
        """Take loaded entries, the oldest ones from `first` on, out of delta, not into q3."""
        delta = self.delta
        for entry in entries:
            self.count -= delta.remove(entry)
        if first <= delta.start and len(entries) > 0:
            delta.start = entries[-1].seq + 1
            delta.first_expiry_ms = UNKNOWN
            if delta.start >= delta.end:
                self.count -= delta.count
                delta.clear()
        self._keep_shape()

    def trim_delta(self, from_seq: i64) -> None:
        """Cut delta at `from_seq`: at and above it, delta has no ready message."""
        delta = self.delta
        if from_seq <= delta.start:
            self.count -= delta.count
            delta.clear()
            self._keep_shape()
        elif from_seq < delta.end:
            delta.end = from_seq

    def shrink_delta(self, count: i64, start: i64, end: i64) -> None:
        """Forget `count` messages of delta without loading them.

        The remaining ones lie in [start, end).
        """
        self.count -= self.delta.shrink(count, start, end)
        self._keep_shape()

    # -- restart and end ---------------------------------------------------------------------------

    def restore_delta(self, start: i64, end: i64, count: i64, size_bytes: i64) -> None:
        """Set delta to `count` live positions of [start, end).

        Called after a start, before `restore`; the index has them.
        """
        if count > 0:
            delta = self.delta
            delta.start = start
            delta.end = end
            delta.count = count
            delta.body_bytes = size_bytes
            delta.content_bytes = size_bytes
            self.count += count
            self._young = self.q1

    def restore(self, entry: Entry) -> None:
        """Append the next younger message, with or without content; after a start."""
        if not entry.has_content:
            entry.form = GAMMA if entry.journal_state == INDEXED else BETA
        self._count_in(entry)
        if self.delta.count > 0:
            self.q2.append(entry)
        elif self.q3.count > 0 or entry.form != ALPHA:
            self.q3.append(entry)
            self._young = self.q1
        else:
            self.q4.append(entry)

    # -- counts ------------------------------------------------------------------------------------

    def _count_in(self, entry: Entry) -> None:
        self.count += 1
        self._body_bytes += entry.body_bytes
        self._content_bytes += entry.content_bytes
        if entry.form != ALPHA:
            self._count_paged(entry)

    def _count_out(self, entry: Entry) -> None:
        self.count -= 1
        self._body_bytes -= entry.body_bytes
        self._content_bytes -= entry.content_bytes
        if entry.form != ALPHA:
            self._uncount_paged(entry)

    def _count_paged(self, entry: Entry) -> None:
        if entry.form == GAMMA:
            self.gamma_count += 1
            self.gamma_bytes += entry.content_bytes
        else:
            self.beta_count += 1
            self.beta_bytes += entry.content_bytes

    def _uncount_paged(self, entry: Entry) -> None:
        if entry.form == GAMMA:
            self.gamma_count -= 1
            self.gamma_bytes -= entry.content_bytes
        else:
            self.beta_count -= 1
            self.beta_bytes -= entry.content_bytes

    # -- shape -------------------------------------------------------------------------------------

    def _part_with(self, entry: Entry) -> EntryDeque | None:
        for part in (self.q4, self.q3, self.q2, self.q1):
            if part.place_of(entry) >= 0:
                return part
        return None

    def _keep_shape(self) -> None:
        """Merge parts after a change in the middle.

        q2 follows an empty delta (S72), q1 an empty middle (S71).
        """
        if self.delta.count == 0:
            if self.delta.end != 0:
                self.delta.clear()
            if self.q2.count > 0:
                self.q3 = _joined(self.q3, self.q2)
                self.q2 = EntryDeque()
            if self.q3.count == 0 and self.q1.count > 0:
                self.q4 = _joined(self.q4, self.q1)
                self.q1 = EntryDeque()
        self._young = self.q4 if self.q3.count == 0 and self.delta.count == 0 else self.q1

    def check(self) -> None:
        """Assert the invariants; for tests."""
        delta = self.delta
        assert self.q1.count == 0 or self.q3.count > 0 or delta.count > 0
        assert self.q2.count == 0 or delta.count > 0
        assert (self.count == 0) == (self.old_count == 0 and delta.count == 0)
        assert (
            self.count
            == self.q1.count + self.q2.count + delta.count + self.q3.count + self.q4.count
        )
        is_short = self.q3.count == 0 and delta.count == 0
        assert self._young is (self.q4 if is_short else self.q1)
        seqs: list[int] = []
        places: list[int] = []
        beta: list[Entry] = []
        gamma: list[Entry] = []
        body_bytes = 0
        content_bytes = 0
        for part in (self.q4, self.q3, self.q2, self.q1):
            for place in range(part.count):
                entry = part.at(place)
                seqs.append(entry.seq)
                body_bytes += int(entry.body_bytes)
                content_bytes += int(entry.content_bytes)
                assert entry.form != ALPHA or entry.has_content
                if entry.form != ALPHA:
                    assert (entry.form == GAMMA) == (entry.journal_state == INDEXED)
                    (gamma if entry.form == GAMMA else beta).append(entry)
            places.append(len(seqs))
        assert seqs == sorted(set(seqs))
        if delta.count > 0:
            assert delta.start < delta.end
            assert delta.is_uncertain or delta.count <= delta.end - delta.start
            assert len(seqs[: places[1]]) == 0 or seqs[places[1] - 1] < delta.start
            assert len(seqs) == places[1] or seqs[places[1]] >= delta.end
        else:
            assert delta.end == 0 and delta.content_bytes == 0
        assert 0 <= delta.transient_count <= delta.count
        assert (self._body_bytes, self._content_bytes) == (body_bytes, content_bytes)
        assert (self.beta_count, self.beta_bytes) == (len(beta), _total_bytes(beta))
        assert (self.gamma_count, self.gamma_bytes) == (len(gamma), _total_bytes(gamma))
        assert self.ram_count >= 0 and self.alpha_bytes >= 0


def _has_paged(entries: list[Entry]) -> bool:
    for entry in entries:  # noqa: SIM110  # compiled, a generator costs more than the loop
        if entry.form != ALPHA:
            return True
    return False


def _joined(older: EntryDeque, younger: EntryDeque) -> EntryDeque:
    """The two parts as one, at the cost of moving the shorter one."""
    if younger.count < older.count:
        while younger.count > 0:
            older.append(younger.pop_left())
        return older
    while older.count > 0:
        younger.append_left(older.pop_right())
    return younger


def _total_bytes(entries: list[Entry]) -> int:
    return sum([int(entry.content_bytes) for entry in entries])
