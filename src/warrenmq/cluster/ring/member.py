"""A member of a ring: broadcasts to all members, and is told of theirs in each sender's order.

The group (`cluster/groups/`) decides who is in the ring; each of its versions is a view (`View`).
Members send to their right neighbour only. The ring promises, to members that have joined:

* The broadcasts of a sender arrive in their order, each once, without gaps. There is no order
  between senders.
* A broadcast of a living sender arrives at all living members. One of a dead sender that arrived at
  any survivor arrives at all of them.
* When a broadcast has circled (`RingHost.on_circled`), every living member has it.
* The news of a member's death arrives after all of its broadcasts. Promotion rests on it.

**What neighbours tell each other.** A member keeps a log for each sender (`SenderLog`): how many
broadcasts it knows, how many are acked, and the payloads of those between. All of this only rises.
A member tells its right neighbour once of each change (ACTIVITY). When the right neighbour changes,
or the link to it is a new one, it tells everything (CATCHUP). So a member knows what its left
neighbour knew, and forwards only what is new to itself. A broadcast that comes back to its sender
has circled; the sender acks it, and the ack makes its round in the same way and frees the memory of
each member (M59).

**Views.** Each frame carries the version of its sender's view. A frame counts if the two have been
neighbours without interruption from that version up to the receiver's own; an older one is ignored,
because a CATCHUP follows. A newer one waits until the receiver has the view. So a frame that was
sent after a death was recorded is only read by members that know of the death, and these no longer
read frames of the dead member.

**Deaths.** A dead member stays in the view as a tombstone, an alias of the living member to its
right (M47), until that member asks its host to erase it (`RingHost.erase`). Before that, nothing
of the dead member may be in flight. To find out, the standing-in member broadcasts an empty payload
(no owner sees it) and notes the dead member's last broadcast that it knows. On its way round, the
empty one follows everything that any member knew of the dead one. When it has circled, and nothing
new of the dead member has arrived meanwhile, all members have the same. Otherwise it tries again.
All members count the dead member as dead to their owners when a view no longer has it.

**Joining.** The state of a newcomer is undefined until its left neighbour's CATCHUP arrives; it
passes this on to the right (M52), and its owner gets `joined`, then the broadcasts that are not
acked yet. The founder of a group (version 1), and a member that finds itself alone, begin with no
state at all (M49). A newcomer asks its left neighbour (ASK), because what was sent to it before it
existed is lost. A newcomer that has no state either adds itself and asks further to the left. One
that finds itself in a question knows that nobody has a state: all members who had one are dead. It
begins with none.

Differences from gm:

* No clocks: what has gathered leaves when the turn ends, or at FLUSH_BYTES. gm waits up to 25 ms.
* The group decides who is dead, from the views of all nodes; gm's neighbours monitor each other and
  wait 100 ms in the hope that a partial partition becomes full. A member cannot die by itself.
* gm reads the new view when a frame names it; here the frame waits, so the ring needs no store.
* In gm a member is told of its neighbour's state, and derives activity from it. Here activity and
  catchup are read alike, and repetitions are harmless.
* gm erases a dead member when the member that stands in for it has no unacked broadcast of it. A
  newcomer directly to the right of the dead member may know less than others; hence the round.
* A newcomer's owner gets broadcasts that were on their way when it joined; in gm it misses them.
* The sender's own callback is not called: the master has applied an operation when it broadcasts.
* No copies of messages go directly from senders to members, and nobody promotes itself here.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.cluster.ring.early_frames import EarlyFrames
from warrenmq.cluster.ring.frames import (
    ACTIVITY,
    ASK,
    CATCHUP,
    MalformedRingFrame,
    RingEntry,
    RingFrame,
    decode,
    encode_ask,
    encode_entries,
)
from warrenmq.cluster.ring.sender_log import SenderLog
from warrenmq.cluster.ring.view import MemberId, View

# Own broadcasts of this size together (bytes) do not wait for the end of the turn.
FLUSH_BYTES: Final = 65536

# The payload of a broadcast that only goes round.
_EMPTY: Final = b""
# The version of a group that a member has created.
_FOUNDING: Final = 1


@mypyc_attr(allow_interpreted_subclasses=True)
class RingHost:
    """Sends a member's frames, and is told what the ring does.

    A method may call `RingMember.broadcast`, and no other method that changes the member.
    """

    def send_frame(self, node: bytes, payload: bytes) -> None:
        """Send a frame to `node`, after all earlier ones; drop it if there is no link."""
        raise RuntimeError("abstract")

    def erase(self, member: MemberId) -> None:
        """Let the group erase a dead member, of which nothing is in flight any more.

        The request is repeated when a view still has the member.
        """
        raise RuntimeError("abstract")

    def on_joined(self, members: list[MemberId]) -> None:
        """The member has a state and may broadcast. `members`: those not yet reported dead."""
        raise RuntimeError("abstract")

    def on_members_changed(self, births: list[MemberId], deaths: list[MemberId]) -> None:
        """Members have been added or erased. All broadcasts of `deaths` have been received."""
        raise RuntimeError("abstract")

    def on_message(self, sender: MemberId, payload: bytes) -> None:
        """Receive the next broadcast of another member."""
        raise RuntimeError("abstract")

    def on_circled(self, count: i64) -> None:
        """All members have the next `count` broadcasts of this member."""
        raise RuntimeError("abstract")

    def on_lost(self) -> None:
        """The group counts this member as dead. This is the last call."""
        raise RuntimeError("abstract")


@mypyc_attr(native_class=True)
class _AliasFlush:
    """The round that shows that nothing of a dead member is in flight."""

    def __init__(self, number: i64, last_pub: i64) -> None:
        # Number of the empty broadcast that goes round.
        self.number: i64 = number
        # The last broadcast of the dead member that was known when it began.
        self.last_pub: i64 = last_pub
        self.is_done: bool = False


@mypyc_attr(native_class=True)
class RingMember:
    """The member `me` of a ring.

    Call `on_view` with every version of the group, in order, the first one has `me`; `take_frame`
    with frames of other members of this ring; and `end_turn` at the end of each turn in which the
    member was called. The host keeps the member from gathering too much, by `buffered_bytes`.
    """

    def __init__(self, me: MemberId, host: RingHost) -> None:
        self.me: MemberId = me
        self._host: RingHost = host
        # None before the first view.
        self.view: View | None = None
        # Version of the view; 0 before the first one.
        self.view_version: i64 = 0
        # Whether the member has a state and may broadcast.
        self.is_joined: bool = False
        self._is_lost: bool = False
        # The neighbours, and the version since which the left one has been that.
        self._left: MemberId = me
        self._left_since: i64 = 0
        self._right: MemberId = me
        # Whether everything that the left neighbour knows, or has sent since, has arrived.
        self._is_caught_up: bool = False
        self._early: EarlyFrames = EarlyFrames()
        self._own: SenderLog = SenderLog(me)
        # The logs of other members in the view, once something of theirs is known.
        self._logs: dict[MemberId, SenderLog] = {}
        # Own broadcasts that were not sent yet (bytes).
        self._gathered_bytes: i64 = 0
        # Whether the right neighbour may have to be told something.
        self._is_changed: bool = False
        # The empty broadcasts on their way round before an alias is erased.
        self._flushes: dict[MemberId, _AliasFlush] = {}

    @property
    def buffered_bytes(self) -> i64:
        """Bytes of own broadcasts that have not circled, and of others' that are not acked."""
        total: i64 = self._own.pending_bytes
        for log in self._logs.values():
            total += log.pending_bytes
        return total

    def received(self, sender: MemberId) -> i64:
        """The number of the last broadcast of another member that has been received; -1: none.

        Within `RingHost.on_message` this is the number of that broadcast.
        """
        log = self._logs.get(sender)
        return log.received if log is not None else -1

    def broadcast(self, payload: bytes) -> i64:
        """Send `payload` (not empty) to all members; returns its number. Only when joined."""
        assert self.is_joined and len(payload) > 0
        number = self._own.append(payload)
        self._is_changed = True
        self._gathered_bytes += len(payload)
        if self._gathered_bytes >= FLUSH_BYTES and not self._is_alone():
            self._flush()
        return number

    def end_turn(self) -> None:
        """Send what has gathered. Alone, own broadcasts have circled."""
        if not self.is_joined or not self._is_changed:
            return
        if not self._is_alone():
            self._flush()
            return
        self._is_changed = False
        self._gathered_bytes = 0
        circled = self._own.ack(self._own.last_pub)
        self._own.note_sent()
        self._settle_aliases(False)
        for log in self._logs.values():
            log.note_sent()
        self._report_circled(circled)

    def on_link_up(self, node: bytes) -> None:
        """There is a new link to `node`, on which nothing was sent: earlier frames may be lost."""
        if self._is_lost or self._is_alone():
            return
        if node == self._right.node and self.is_joined:
            self._catch_up_right()
        if node == self._left.node and not self._is_caught_up:
            self._ask_left([self.me])

    # -- views -------------------------------------------------------------------------------------

    def on_view(self, version: i64, members: list[tuple[MemberId, bool]]) -> None:
        """The group has a new version; `members` in ring order, each with whether it is alive."""
        assert version > self.view_version
        if self._is_lost:
            return
        before = self.view
        # If versions are skipped, the right neighbour may have been another one meanwhile.
        is_right_new = version != self.view_version + 1
        view = View(version, members)
        self.view = view
        self.view_version = version
        place = view.living.get(self.me)
        if place is None:
            self._lose_membership()
            return
        is_left_new = place.left != self._left
        if is_left_new:
            self._left = place.left
            self._left_since = version
            self._is_caught_up = False
        if place.right != self._right:
            self._right = place.right
            is_right_new = True
        self._is_changed = True
        if self.is_joined:
            assert before is not None
            self._change_members(before, view, is_right_new)
        elif self._is_alone() or (before is None and self.me.version == _FOUNDING):
            self._join([])
        elif is_left_new:
            self._ask_left([self.me])
        self._handle_early()

    def _change_members(self, before: View, view: View, is_right_new: bool) -> None:
        births = [member for member in view.members if member not in before.members]
        deaths = [member for member in before.members if member not in view.members]
        for member in deaths:
            self._logs.pop(member, None)
        if is_right_new:
            self._catch_up_right()
        self._settle_aliases(True)
        if len(births) > 0 or len(deaths) > 0:
            self._host.on_members_changed(births, deaths)

    def _lose_membership(self) -> None:
        self._is_lost = True
        self.is_joined = False
        self._own = SenderLog(self.me)
        self._logs.clear()
        self._flushes.clear()
        self._early.clear()
        self._host.on_lost()

    def _is_alone(self) -> bool:
        return self._right == self.me

    def _is_member(self, member: MemberId) -> bool:
        view = self.view
        return view is not None and member in view.members

    # -- frames ------------------------------------------------------------------------------------

    def take_frame(self, node: bytes, payload: bytes) -> None:
        """Take a frame from `node`; raises MalformedRingFrame, and then ignores the frame."""
        frame = decode(payload)
        if self._is_lost:
            return
        if frame.version > self.view_version:
            self._early.keep(node, frame, len(payload))
        else:
            self._handle(node, frame)

    def _handle_early(self) -> None:
        for early in self._early.take(self.view_version):
            try:
                self._handle(early.node, early.frame)
            except MalformedRingFrame:
                # The link goes down when the answer is no better.
                self._is_caught_up = False
                self._ask_left([self.me])
        if self._early.take_dropped(self.view_version) and not self._is_alone():
            self._is_caught_up = False
            self._ask_left([self.me])
            # A question of the right neighbour may have been dropped, too.
            self._catch_up_right()

    def _handle(self, node: bytes, frame: RingFrame) -> None:
        if self._is_alone():
            return
        if frame.kind == ASK:
            # An old question is answered, too: a repetition is harmless.
            if node == self._right.node:
                self._answer(frame.members)
        elif node == self._left.node:
            if frame.version < self._left_since:
                # The neighbour counts from an earlier view than a newcomer whose first view came
                # late, and does not know that this is no use.
                if frame.kind == CATCHUP and not self._is_caught_up:
                    self._ask_left([self.me])
            elif frame.kind == CATCHUP:
                if self.is_joined:
                    self._learn(frame.entries)
                else:
                    self._join(frame.entries)
                self._is_caught_up = True
            elif self._is_caught_up:
                self._learn(frame.entries)

    def _answer(self, members: list[MemberId]) -> None:
        if self.is_joined:
            self._catch_up_right()
        elif self.me in members:
            # The question has gone all the way round: nobody has a state.
            self._join([])
        else:
            self._ask_left([*members, self.me])

    def _ask_left(self, members: list[MemberId]) -> None:
        self._host.send_frame(self._left.node, encode_ask(self.view_version, members))

    def _join(self, entries: list[RingEntry]) -> None:
        view = self.view
        assert view is not None
        self.is_joined = True
        adopted: list[SenderLog] = []
        for entry in entries:
            if entry.sender != self.me and entry.sender in view.members:
                log = SenderLog(entry.sender)
                log.adopt(entry)
                self._logs[entry.sender] = log
                adopted.append(log)
        self._catch_up_right()
        self._settle_aliases(True)
        self._host.on_joined(view.members.copy())
        for log in adopted:
            self._receive(log, log.pending.copy())

    def _learn(self, entries: list[RingEntry]) -> None:
        """Take over what the left neighbour knows; forward what is new before anything else."""
        for entry in entries:
            if entry.sender == self.me:
                if entry.last > self._own.sent_pub:
                    raise MalformedRingFrame(f"own broadcast {entry.last} was never sent")
            elif self._is_member(entry.sender):
                self._log(entry.sender).check(entry)
        circled: list[bytes] = []
        logs: list[SenderLog] = []
        news: list[list[bytes]] = []
        for entry in entries:
            if entry.sender == self.me:
                circled = self._own.ack(entry.last)
            elif self._is_member(entry.sender):
                log = self._log(entry.sender)
                fresh = log.merge(entry)
                if len(fresh) > 0:
                    logs.append(log)
                    news.append(fresh)
        self._is_changed = True
        if len(logs) > 0:
            # A log must not be acked while it has broadcasts that were not forwarded.
            self._flush()
        self._settle_aliases(False)
        self._report_circled(circled)
        for index, log in enumerate(logs):
            self._receive(log, news[index])

    def _log(self, sender: MemberId) -> SenderLog:
        log = self._logs.get(sender)
        if log is None:
            log = self._logs[sender] = SenderLog(sender)
        return log

    def _receive(self, log: SenderLog, payloads: list[bytes]) -> None:
        for payload in payloads:
            log.received += 1
            if len(payload) > 0:
                self._host.on_message(log.sender, payload)

    def _report_circled(self, payloads: list[bytes]) -> None:
        count: i64 = 0
        for payload in payloads:
            if len(payload) > 0:
                count += 1
        if count > 0:
            self._host.on_circled(count)

    def _flush(self) -> None:
        """Tell the right neighbour what it has not been told."""
        self._is_changed = False
        self._gathered_bytes = 0
        entries: list[RingEntry] = []
        for log in [self._own, *self._logs.values()]:
            entry = log.news()
            if entry is not None:
                entries.append(entry)
        if len(entries) > 0:
            self._send_right(ACTIVITY, entries)

    def _catch_up_right(self) -> None:
        """Tell the right neighbour everything, if there is anything to tell."""
        if not self.is_joined or self._is_alone():
            return
        self._gathered_bytes = 0
        logs = [self._own, *self._logs.values()]
        self._send_right(CATCHUP, [log.everything() for log in logs])

    def _send_right(self, kind: i64, entries: list[RingEntry]) -> None:
        payload = encode_entries(kind, self.view_version, entries)
        self._host.send_frame(self._right.node, payload)

    # -- aliases -----------------------------------------------------------------------------------

    def _settle_aliases(self, is_new_view: bool) -> None:
        """Begin or end the rounds of aliases; repeat the requests to erase them in a new view."""
        view = self.view
        assert view is not None
        aliases = view.living[self.me].aliases
        if is_new_view:
            flushes = self._flushes
            self._flushes = {each: flushes[each] for each in aliases if each in flushes}
        restarted: list[MemberId] = []
        for alias in aliases:
            log = self._log(alias)
            flush = self._flushes.get(alias)
            if flush is None:
                restarted.append(alias)
            elif flush.is_done:
                if is_new_view:
                    self._host.erase(alias)
            elif self._own.last_ack >= flush.number:
                if flush.last_pub != log.last_pub:
                    restarted.append(alias)
                    continue
                flush.is_done = True
                log.ack(log.last_pub)
                self._is_changed = True
                self._host.erase(alias)
        if len(restarted) > 0:
            number = self._own.append(_EMPTY)
            self._is_changed = True
            for alias in restarted:
                self._flushes[alias] = _AliasFlush(number, self._log(alias).last_pub)
