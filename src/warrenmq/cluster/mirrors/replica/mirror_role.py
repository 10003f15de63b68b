"""A mirror of one master in one epoch: applies the master's ring messages, reports what is durable.

A mirror is *complete* when its copy has everything of the master up to the last ring message that
arrived. It is so from the start if the group records its copy as in sync, it gets the messages of
the epoch from the first one on, and it has heard as much of earlier masters as this one: the last
messages of a master that dies may have reached some mirrors only. Otherwise it is synchronised
(`cluster/mirrors/sync/target.py`). Only a complete mirror reports marks: a confirm may rest on each
of them (I1).

A mirror that has heard more than the new master is complete, too. What was published to it alone,
the master lets it drop (`RingFeed.begin`). Its copy may lack messages that the last master has
settled without the new one hearing of it: consumers have acked them, so nobody misses them if this
copy leads next. All others are synchronised with it then, or they would keep these messages, and
bring them back when one of them leads.
"""

from __future__ import annotations

from typing import Final

from warrenmq.cluster.mirrors.records import (
    UNKNOWN,
    DurableRecord,
    FailedRecord,
    Heard,
    MalformedMirrorRecord,
    NewerRecord,
    SyncRecord,
    decode_message,
)
from warrenmq.cluster.mirrors.replica.host import RoleHost
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.sync.records import decode
from warrenmq.cluster.mirrors.sync.target import IN_SYNC, SyncTarget
from warrenmq.queues.mirror.applier import StaleEpochError, UnknownEpochError
from warrenmq.queues.mirror.durable_marks import DurableMarks, MarkHost
from warrenmq.queues.remote.link_records import MalformedRecordError
from warrenmq.vocabulary.fail_points import fail_point

# A mirror that is in sync, and has got no ring message for this time, asks what it lacks.
QUIET_MS: Final = 1000
# The operations of a ring message begin with the epoch of the master (i64).
_EPOCH_BYTES: Final = 8


class MirrorRole(MarkHost):
    """The mirror with `copy` in `epoch`; `is_in_sync`: the group records its copy as in sync.

    `heard`: how far the copy has followed the masters of earlier epochs. `attempt`: the last one of
    an earlier mirror of this node to be synchronised.
    """

    def __init__(
        self,
        copy: MirrorCopy,
        epoch: int,
        is_in_sync: bool,
        heard: Heard,
        replica: RoleHost,
        now_ms: int,
        attempt: int = 0,
    ) -> None:
        self.copy: MirrorCopy = copy
        self.epoch: int = epoch
        # How far the copy has followed its masters by now; UNKNOWN during a synchronisation.
        self.heard: Heard = heard
        self._first_attempt: int = attempt
        # The last ring message that arrived; 0: none.
        self.received_upto: int = 0
        self.marks: DurableMarks = DurableMarks(copy.journal, self, copy.marks)
        copy.marks = self.marks
        # Set once the mirror knows that it is, or may be, incomplete.
        self.target: SyncTarget | None = None
        self._is_in_sync: bool = is_in_sync
        self._replica: RoleHost = replica
        # It is in the ring: every ring message from now on arrives.
        self._is_joined: bool = False
        self._since_ms: int = now_ms
        # Messages that came before the copy was ready, with their time.
        self._early: list[tuple[bytes, int]] = []
        self._is_ended: bool = False
        # The mirror lacks something; its marks stay where they are until it is synchronised.
        self.marks.pause()
        copy.when_ready(self._on_ready)

    @property
    def attempt(self) -> int:
        """The last attempt to be synchronised, of this mirror or of an earlier one."""
        return self._first_attempt if self.target is None else self.target.attempt

    def end(self) -> None:
        """Apply and report nothing more: the master or the epoch is another one."""
        self._is_ended = True
        self._early = []
        if self.target is not None:
            self.target.stop()

    # -- ring messages -----------------------------------------------------------------------------

    def joined(self, now_ms: int) -> None:
        """The ring has taken the mirror in."""
        self._is_joined = True
        if not self._is_in_sync:
            self._sync(now_ms)

    def take(self, message: bytes, now_ms: int) -> None:
        """Take the next ring message of the master. Raises MalformedMirrorRecord."""
        if self._is_ended:
            return
        if not self.copy.is_ready:
            self._early.append((message, now_ms))
            return
        fail_point("mirrors.received")
        number, heard, operations = decode_message(message)
        if int.from_bytes(operations[:_EPOCH_BYTES]) < self.epoch:
            # It comes from a deposed master, which may not know it yet.
            self._replica.report(NewerRecord(self.epoch))
            return
        before = self.received_upto
        if before > 0 and number != before + 1:
            self._replica.reopen()
            return
        self.received_upto = number
        is_undecided = before == 0 and self.target is None
        is_complete = is_undecided and number == 1 and self._is_in_sync and self.heard >= heard
        if is_complete:
            # A synchronisation with the last master may have been under way: nothing was confirmed
            # without this copy, whatever it lacks.
            self.copy.applier.stop_sync(now_ms)
            self.marks.resume()
        elif is_undecided:
            # Before the message: that may begin an epoch, behind which nothing older has a place.
            self._sync(now_ms)
        try:
            is_for_disk = self.copy.applier.apply(operations, now_ms)
        except StaleEpochError:
            self._replica.report(NewerRecord(self.copy.epoch))
            return
        except UnknownEpochError:
            is_for_disk = False
        except MalformedRecordError as error:
            # The rest of the message is lost to this copy.
            self._replica.reopen()
            raise MalformedMirrorRecord(str(error)) from None
        fail_point("mirrors.applied")
        self.marks.note(number, bool(is_for_disk))
        if is_complete and self.heard > heard:
            # It has heard of acks that its master has not: no other copy is like this one.
            self.heard = UNKNOWN
        elif is_complete or self.heard == Heard(self.epoch, before):
            self.heard = Heard(self.epoch, number)

    # -- synchronisation ---------------------------------------------------------------------------

    def take_sync(self, record: SyncRecord, now_ms: int) -> None:
        """Take a record of the master. Raises MalformedMirrorRecord."""
        if self.target is not None and not self._is_ended:
            self.target.take(decode(record), now_ms)
            self._note_heard()

    def link_is_new(self, now_ms: int) -> None:
        """Repeat to the master what was lost with the last link."""
        if self.target is not None:
            self._sync(now_ms)
        if self.marks.durable_upto > 0:
            self.mark_raised(int(self.marks.durable_upto))

    def advance(self, now_ms: int) -> None:
        """Run the timers; called once a turn, and several times a second."""
        if self._is_ended or not self.copy.is_ready:
            return
        self.marks.check_disk()
        if self.target is not None:
            self.target.advance(now_ms)
            self._note_heard()
        elif self._is_joined and self.received_upto == 0 and now_ms - self._since_ms >= QUIET_MS:
            self._sync(now_ms)

    # -- what is durable ---------------------------------------------------------------------------

    def mark_raised(self, upto: int) -> None:
        """See MarkHost."""
        if not self._is_ended:
            fail_point("mirrors.durable")
            self._replica.report(DurableRecord(self.epoch, int(upto)))
            fail_point("mirrors.reported")

    def mark_failed(self) -> None:
        """See MarkHost."""
        if not self._is_ended:
            self._replica.begin_anew()

    def failure(self) -> FailedRecord:
        """The record that tells the master not to count on the copy."""
        return FailedRecord(self.epoch)

    # -- internal ----------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        early = self._early
        self._early = []
        for message, now_ms in early:
            self.take(message, now_ms)
        if self._is_joined and not self._is_ended and not self._is_in_sync:
            self._sync(self._since_ms)

    def _sync(self, now_ms: int) -> None:
        if self._is_ended or not self.copy.is_ready or not self._is_joined:
            return
        if self.target is None:
            self.target = SyncTarget(
                self.copy.applier, self.marks, self._replica, self._first_attempt
            )
        try:
            self.target.begin(self.epoch, now_ms)
        except StaleEpochError:
            self._replica.report(NewerRecord(self.copy.epoch))
        self._note_heard()

    def _note_heard(self) -> None:
        """A copy that is being synchronised has a part of what its master has."""
        if self.target is not None:
            is_level = self.target.state == IN_SYNC
            self.heard = Heard(self.epoch, self.received_upto) if is_level else UNKNOWN
