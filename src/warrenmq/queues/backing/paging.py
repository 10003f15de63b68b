"""Paging: which messages of a queue leave memory, one slice at a time (S59-S69, S74-S76).

A default queue pages while more of its messages are in memory, unacked ones included, than its
`target_ram_count`:

1. alphas leave: first the oldest of q1, which move to the middle (q2 or q3), then the youngest of
   q4. Unacked messages drop their content; which of ready and unacked messages comes first depends
   on which grow faster. The youngest of q4 cannot move before they are on disk, and while a client
   publishes without a pause they never are: in that case the surplus of q4 becomes q1, and its
   oldest move first. A message that is in the index just drops its content. A large message that is
   not journaled goes to the transient content store, a large persistent one moves to the index; a
   small one keeps its content until it goes to delta (C14).
2. when the middle holds `page_batch` more than `permitted_beta_count`, the surplus goes to delta:
   first the youngest of q3, all but its oldest message (C7), then the oldest of q2 (S66).

A lazy queue moves all messages to delta except those that a consumer will want next. So does a deep
one, which is a default queue with more content than its room (`MemoryAccount.deep_room`), but it
keeps the oldest messages that fit into half of that room, whether it has consumers or not.

The index takes positions in ascending order only: to index one position, all older ones are indexed
too, unacked ones included. A position that is not sealed (PENDING), or whose content is not on disk
yet, cannot move: the slice stops there and resumes after the next seal or commit.
"""

from mypy_extensions import i64

from warrenmq.queues.backing.contents import QueueContents
from warrenmq.queues.backing.read_ahead import deep_count, kept_count
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.entry import ALPHA, BETA, GAMMA, Entry
from warrenmq.queues.turn import DONE, MORE, WAIT_FOR_DISK, WAIT_FOR_SEAL, WRITE_STEPS
from warrenmq.store.model.message import INDEXED, NOT_JOURNALED, PENDING, Message, Position


class Progress:
    """The progress of one queue's paging, kept between two slices."""

    def __init__(self) -> None:
        # Messages still to push of a batch that a slice cut short: they follow in any case (S66).
        self.push_left: i64 = 0
        # `_drop_unacked` has handled all unacked messages from this seq id on; lower ones are next.
        self.unacked_below: i64 = UNLIMITED
        # The current round of `_drop_unacked` began at the youngest unacked message and never
        # reached its goal since.
        self.is_full_round: bool = False


def page_slice(contents: QueueContents, progress: Progress) -> i64:
    """Page one slice of `contents`, within the steps that their host has left.

    Returns how the slice ended.
    """
    if contents.store.is_behind:
        return WAIT_FOR_DISK
    steps: i64 = max(contents.host.steps_left, i64(WRITE_STEPS))
    step = PageStep(contents, progress, steps)
    memory = contents.memory
    if memory.is_lazy:
        step.page_lazy(kept_count(contents))
    else:
        if memory.is_deep:
            step.page_lazy(max(kept_count(contents), deep_count(contents)))
        if memory.target_ram_count < UNLIMITED:
            step.reduce()
    contents.steps_used += steps - step.steps_left
    return step.outcome()


def index_slice(contents: QueueContents, progress: Progress, upto: i64, limit: i64) -> i64:
    """Index at most `limit` live positions below `upto`, oldest first; contents stay in memory.

    Returns DONE when none is left, else MORE or WAIT_FOR_SEAL.
    """
    step = PageStep(contents, progress, limit * WRITE_STEPS)
    return DONE if step.index(upto) else step.outcome()


def journal_alone(contents: QueueContents, entry: Entry, now_ms: i64) -> None:
    """Journal an entry that is in memory only. Its content must be in memory."""
    message = entry.message
    if entry.content_ref is not None:
        # Release the copy in the transient content store, which the journal's record replaces.
        contents.store.settle(entry, now_ms)
        # Journal a separate message: queues that keep theirs in memory only may share the original.
    entry.message = Message(
        message.address, message.properties, message.body, message.persistent, message.timestamp_ms
    )
    contents.store.append(entry, now_ms)


def journal_missing(contents: QueueContents, entries: list[Entry], now_ms: i64) -> bool:
    """Journal the entries that are not on disk yet; True: there were such.

    They are transient ones that must survive a restart. Their content must be in memory. Some
    entries may have moved to the index before their queue had any reader group; of these, transient
    ones and those whose batch had failed do not survive this run of the node.
    """
    is_any = False
    for entry in entries:
        if entry.journal_state == NOT_JOURNALED:
            journal_alone(contents, entry, now_ms)
            is_any = True
    return is_any


def journal_ready(contents: QueueContents, first: i64, end: i64) -> None:
    """Journal the ready entries of [first, end) that are in memory only, content and all."""
    ready = contents.ready
    place = ready.index_of_seq(first)
    while place < ready.entry_count:
        entry = ready.at(place)
        if entry.seq >= end:
            break
        if entry.journal_state == NOT_JOURNALED and entry.form == ALPHA:
            journal_alone(contents, entry, contents.store.now_ms)
        place += 1


class PageStep:
    """One slice of paging: the steps it has left, and what stopped it."""

    def __init__(self, contents: QueueContents, progress: Progress, steps: i64) -> None:
        self.contents: QueueContents = contents
        self.progress: Progress = progress
        # Steps left: a message that is moved costs one, a message that is written WRITE_STEPS.
        self.steps_left: i64 = steps
        # The slice ended because its steps were used up.
        self.is_cut: bool = False
        # The slice met a position that cannot move before the next seal or commit.
        self.is_blocked: bool = False

    def outcome(self) -> i64:
        """How the slice ended: MORE, WAIT_FOR_SEAL or DONE."""
        if self.is_cut:
            return MORE
        return WAIT_FOR_SEAL if self.is_blocked else DONE

    # -- a default queue ---------------------------------------------------------------------------

    def reduce(self) -> None:
        """Run one slice for a default queue with a `target_ram_count`."""
        contents = self.contents
        excess = contents.memory.ram_count - contents.memory.target_ram_count
        if excess > 0:
            if contents.memory.rates.grows_by_acks():
                self._drop_unacked(excess)
                self._push_alphas(contents.memory.ram_count - contents.memory.target_ram_count)
            else:
                self._push_alphas(excess)
                self._drop_unacked(contents.memory.ram_count - contents.memory.target_ram_count)
        self._push_middle(excess > 0)
        self._drop_middle(contents.memory.ram_count - contents.memory.target_ram_count)

    def _push_alphas(self, excess: i64) -> None:
        ready = self.contents.ready
        excess = self._push_q1(excess)
        if ready.q1.count > 0:
            return
        while excess > 0 and ready.q4.count > 0:
            entry = ready.q4.last()
            if not self._may_push(entry):
                if self.is_cut or ready.q3.count > 0 or ready.delta.count > 0:
                    return
                # Under publishes without a pause the youngest are not on disk yet: move older ones.
                keep: i64 = max(0, ready.q4.count - excess)
                entry = ready.q4.at(keep)
                if not self._may_push(entry):
                    return
                ready.part_q4(keep)
                ready.push_q1()
                excess -= self._drop_ready(entry)
                self._push_q1(excess)
                return
            ready.push_q4()
            excess -= self._drop_ready(entry)

    def _push_q1(self, excess: i64) -> i64:
        """Move the oldest of q1 to the middle until `excess` contents left memory.

        Returns the rest of `excess`.
        """
        ready = self.contents.ready
        while excess > 0 and ready.q1.count > 0:
            entry = ready.q1.first()
            if not self._may_push(entry):
                break
            ready.push_q1()
            excess -= self._drop_ready(entry)
        return excess

    def _may_push(self, entry: Entry) -> bool:
        """Whether an entry can move to the middle, as its content is on disk or stays in memory.

        Writes what must be written before the move, as far as the steps allow.
        """
        if not self._may_move():
            return False
        state = entry.journal_state
        if state == PENDING:
            self.is_blocked = True
            return False
        if state == INDEXED or entry.form != ALPHA or entry.content_ref is not None:
            return True
        if entry.content_bytes < self.contents.host.embed_below:
            return True
        if state != NOT_JOURNALED:
            return self.index(entry.seq + 1)
        if self._must_journal(entry):
            return False
        if not self._may_take(WRITE_STEPS):
            return False
        self.contents.store.content_to_transient(entry)
        return True

    def _drop_ready(self, entry: Entry) -> i64:
        # Returns how many contents left memory: 0 or 1.
        if entry.form != ALPHA or not entry.is_on_disk():
            return 0
        self.contents.ready.drop_content(entry)
        return 1

    def _drop_unacked(self, excess: i64) -> None:
        """Drop contents of unacked messages, youngest first, until `excess` of them left memory.

        A message that is not on disk is indexed first. Unacked messages may be very many, so each
        slice resumes below the place where the last one stopped, and starts from the top again
        after reaching the oldest.
        """
        contents = self.contents
        if excess <= 0 or contents.unacked.ram_count == 0:
            return
        progress = self.progress
        if progress.unacked_below == UNLIMITED:
            progress.is_full_round = True
        out = self._unacked_below(min(progress.unacked_below, contents.ledger.next_seq))
        if len(out) == 0:
            # The oldest is reached. Messages above the round's start may have come since then, so a
            # round that did not begin at the top is followed by another.
            self.is_cut = self.is_cut or not progress.is_full_round
            progress.unacked_below = UNLIMITED
            return
        place: i64 = len(out) - 1
        while place >= 0 and excess > 0:
            entry = out[place]
            if not self._may_move():
                return
            if entry.form == ALPHA:
                if not entry.is_on_disk() and not self.index(entry.seq + 1):
                    return
                contents.unacked.drop_content(entry)
                excess -= 1
            progress.unacked_below = entry.seq
            place -= 1
        if excess > 0:
            self.is_cut = True
        else:
            progress.is_full_round = False

    def _unacked_below(self, below: i64) -> list[Entry]:
        """The youngest unacked entries with seq ids below `below`, ascending; about a slice.

        Empty only when there is none. The search visits all unacked entries, but sorts only the
        returned ones.
        """
        contents = self.contents
        width: i64 = max(self.steps_left, i64(WRITE_STEPS))
        out = contents.find_unacked(max(0, below - width), below)
        if len(out) == 0 and below > width:
            older = contents.find_unacked(0, below - width)
            highest: i64 = -1
            for entry in older:
                highest = max(highest, entry.seq)
            for entry in older:
                if entry.seq > highest - width:
                    out.append(entry)
        out.sort()
        return out

    def _drop_middle(self, excess: i64) -> None:
        """Drop contents of q3 that were read ahead, if no consumer will want them soon."""
        ready = self.contents.ready
        middle = ready.ram_count - ready.q1.count - ready.q4.count
        if excess <= 0 or middle <= 0 or self.contents.demand.exists():
            return
        place = ready.q3.count - 1
        last: i64 = max(0, ready.q3.count - self.contents.host.segment_entries)
        while place >= last and excess > 0:
            excess -= self._drop_ready(ready.q3.at(place))
            place -= 1

    def _push_middle(self, is_above: bool) -> None:
        contents = self.contents
        ready = contents.ready
        permitted = permitted_beta_count(
            ready.count,
            ready.q1.count,
            ready.q3.count,
            ready.q4.count,
            contents.memory.target_ram_count,
            contents.host.segment_entries,
        )
        if is_above and ready.alpha_bytes > contents.host.memory.ahead_room():
            # The rules of 3.5 count messages. By them, a segment of small messages would stay with
            # up to 64 MiB of content, and one of large messages with more.
            permitted = 0
        surplus = ready.q2.count + ready.q3.count - permitted
        batch = contents.host.page_batch
        progress = self.progress
        if surplus < batch:
            surplus = progress.push_left
        if surplus <= 0:
            return
        begun = surplus
        # Keep the messages that were read ahead for a consumer, and always one.
        keep = max(kept_count(contents), 1)
        surplus = self._push_old(surplus, keep)
        while surplus > 0 and ready.q2.count > 0 and self._push_young(ready.q2.last_seq() + 1):
            surplus -= 1
        progress.push_left = (progress.push_left - (begun - surplus)) % batch if self.is_cut else 0

    # -- a lazy queue, and a deep one --------------------------------------------------------------

    def page_lazy(self, keep: i64) -> None:
        """Run one slice for a lazy or deep queue, which keeps its `keep` oldest messages."""
        contents = self.contents
        ready = contents.ready
        excess = contents.memory.ram_count - contents.memory.target_ram_count
        if excess > 0 and contents.memory.is_lazy:
            self._drop_unacked(excess)
        if ready.delta.count == 0 and ready.q3.count == 0:
            if ready.q4.count <= keep:
                return
            self.index(ready.q4.last_seq() + 1)
            if ready.q4.at(keep).journal_state != INDEXED or not self._may_move():
                return
            ready.part_q4(keep)
            # Use the step already taken: if the slice ended here, q1 would follow an empty middle.
            ready.push_young()
        else:
            self._push_old(ready.old_count, keep)
            if ready.delta.count == 0:
                return
        while ready.q2.count + ready.q1.count > 0:
            last = ready.q1.last_seq() if ready.q1.count > 0 else ready.q2.last_seq()
            if not self._push_young(last + 1):
                return

    # -- to delta ----------------------------------------------------------------------------------

    def _push_old(self, surplus: i64, keep: i64) -> i64:
        """Push the youngest of q3 (if lazy or deep then of q4) except the `keep` oldest.

        Returns the rest of `surplus`.
        """
        contents = self.contents
        ready = contents.ready
        if contents.loader.is_reading_ahead:
            # Delta must keep the start from which the current load reads.
            return surplus
        takes_all = contents.memory.is_lazy or contents.memory.is_deep
        while surplus > 0 and ready.old_count > keep and (ready.q3.count > 0 or takes_all):
            if ready.q3.count == 1 and not takes_all:
                break
            entry = ready.q3.last() if ready.q3.count > 0 else ready.q4.last()
            if entry.journal_state != INDEXED and not self.index(entry.seq + 1):
                return surplus
            if not self._may_move():
                return surplus
            ready.push_old()
            surplus -= 1
        return surplus

    def _push_young(self, index_upto: i64) -> bool:
        """Push the oldest entry younger than delta to delta; False when it has to wait.

        To index that entry, all positions below `index_upto` are indexed with it.
        """
        ready = self.contents.ready
        entry = ready.q2.first() if ready.q2.count > 0 else ready.q1.first()
        if entry.journal_state != INDEXED:
            self.index(index_upto)
            if entry.journal_state != INDEXED:
                return False
        if not self._may_move():
            return False
        ready.push_young()
        return True

    def _may_move(self) -> bool:
        return self._may_take(1)

    def _may_take(self, steps: i64) -> bool:
        if self.steps_left < steps:
            self.is_cut = True
            return False
        self.steps_left -= steps
        return True

    # -- to the index ------------------------------------------------------------------------------

    def index(self, upto: i64) -> bool:
        """Move live positions below `upto` to the index, oldest first; True when all are there."""
        contents = self.contents
        ledger = contents.ledger
        upto = min(upto, ledger.next_seq)
        while ledger.indexed_upto < upto:
            if self.steps_left < WRITE_STEPS:
                self.is_cut = True
                return False
            if not self._index_some(upto):
                return False
        return True

    def _index_some(self, upto: i64) -> bool:
        """Index as many positions as there are steps for; False when an unsealed one blocks."""
        contents = self.contents
        ledger = contents.ledger
        first = contents.ready.unindexed(ledger.indexed_upto, upto, 1)
        if len(first) > 0 and not contents.store.may_index(first[0]):
            # A turn often finds the queue as the last one has left it: it need not look further.
            self.is_blocked = True
            self.steps_left -= WRITE_STEPS
            return False
        most = self.steps_left // WRITE_STEPS
        found = contents.ready.unindexed(ledger.indexed_upto, upto, most)
        end = found[-1].seq + 1 if len(found) >= most else upto
        out: list[Entry] = []
        if ledger.unindexed_unacked > 0:
            out = contents.find_unacked(ledger.indexed_upto, end)
            if len(out) > most:
                end = _end_of_oldest(out, most)
                out = _below(out, end)
                found = _below(found, end)
            if len(out) > 0:
                found = found + out
                found.sort()
        count: i64 = 0
        limit: i64 = min(most, i64(len(found)))
        positions: list[Position] = []
        store = contents.store
        while (
            count < limit and not self._must_journal(found[count]) and store.may_index(found[count])
        ):
            positions.append(found[count])
            count += 1
        self.is_blocked = self.is_blocked or count < limit
        # Even an empty scan counts as a step, so that a queue with nothing to index cannot spin.
        self.steps_left -= WRITE_STEPS * max(count, 1)
        if count > 0:
            store.index(positions)
            self._note_indexed(found, count, out)
        if count == len(found):
            store.index_range_done(end)
            return True
        return count == limit

    def _must_journal(self, entry: Entry) -> bool:
        """Journal an entry that must be journaled before it may move; True when the entry was one.

        A reader group that reserves the entry later must find it after a restart; an index record
        of a transient message would not survive.
        """
        contents = self.contents
        if (
            entry.journal_state != NOT_JOURNALED
            or not contents.journals_transient
            or entry.form != ALPHA
        ):
            return False
        journal_alone(contents, entry, contents.store.now_ms)
        self.is_blocked = True
        return True

    def _note_indexed(self, found: list[Entry], count: i64, out: list[Entry]) -> None:
        contents = self.contents
        mark = contents.ledger.indexed_upto
        for entry in out:
            if entry.seq < mark:
                contents.unacked.on_indexed(entry)
                if entry.form == BETA:
                    entry.form = GAMMA
        index: i64 = 0
        while index < count:
            entry = found[index]
            index += 1
            # Unacked entries became GAMMA in the loop above, so this counts ready ones only.
            if entry.form == BETA:
                contents.ready.on_indexed(entry)


def _end_of_oldest(entries: list[Entry], count: i64) -> i64:
    """A seq id that has at least one and at most `count` of `entries` below it.

    The search does not sort `entries`.
    """
    lowest: i64 = entries[0].seq
    for entry in entries:
        lowest = min(lowest, entry.seq)
    return lowest + count


def _below(entries: list[Entry], end: i64) -> list[Entry]:
    """The entries with seq ids below `end`, in the same order."""
    return [entry for entry in entries if entry.seq < end]


def permitted_beta_count(
    length: i64,
    q1_count: i64,
    q3_count: i64,
    q4_count: i64,
    target_ram_count: i64,
    segment_entries: i64,
) -> i64:
    """The number of a queue's `length` messages that may be betas or gammas instead of delta (S65).

    A larger target permits more (C9). At least as many as one segment of the index holds may stay
    (C8).
    """
    if length == 0 or target_ram_count >= UNLIMITED:
        return UNLIMITED
    if target_ram_count == 0:
        return min(q3_count, segment_entries)
    beta = length - q1_count - q4_count
    return max(segment_entries, beta - beta * beta // (beta + target_ram_count))
