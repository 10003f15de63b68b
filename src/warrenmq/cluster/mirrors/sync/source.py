"""The master's side of a synchronisation: sends one mirror what it misses, beside all other work.

    IDLE --OFFER--> SCANNING --ANSWER--> WAITING --start--> SENDING --DONE--> ENDING --> SYNCED
                                          ^  |                 |
                                          |  +-- nothing left -+--> ENDING
                                          +------ cancel ------+

The queue never stops for it (F5). Messages are read in small batches without leaving the queue, two
chunks at most are on their way, and the rate has two limits: the configured one, and while the
queue is in use a share of what its operations take.

What the queue does meanwhile reaches the mirror through the ring, which it joined before it made
its offer. Applying an operation and taking a chunk may come in either order, so what is sent may be
as old as it likes. A cancelled synchronisation keeps its place (F7). Every wait for the mirror has
an end (F16): the mirror is told, and offers anew.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from warrenmq.cluster.mirrors.log.sync_lines import SyncLines
from warrenmq.cluster.mirrors.records import MalformedMirrorRecord, SyncRecord
from warrenmq.cluster.mirrors.sync import records
from warrenmq.cluster.mirrors.sync.pace import SyncPace
from warrenmq.cluster.mirrors.sync.reader import FoundMessage, SyncReader
from warrenmq.cluster.mirrors.sync.scan import LevelDifference, OfferScan, Pieces
from warrenmq.cluster.mirrors.sync.speed import SyncSpeed
from warrenmq.queues.queue import Queue

# A chunk has so many bytes of messages, or one larger message.
CHUNK_BYTES: Final = 262144
# Chunks on their way to the mirror's disk.
WINDOW: Final = 2
# Bytes of messages that were read and not sent, from which on nothing more is read.
READ_BYTES: Final = 2 * CHUNK_BYTES
# The mirror has so much time (ms) to take a chunk, or to be complete.
ANSWER_MS: Final = 30_000
# Bytes of a message in a chunk beside its content.
_MESSAGE_BYTES: Final = 40
# Time (ms) between two PROGRESS: by them the mirror knows that its attempt is alive.
PROGRESS_MS: Final = 2_000

IDLE: Final = 0
SCANNING: Final = 1
WAITING: Final = 2
SENDING: Final = 3
ENDING: Final = 4
IN_SYNC: Final = 5


class SourceHost:
    """The master of the mirrors that are synchronised: the way to them, and its ring."""

    # Bytes of operations that the master has sent over its ring so far.
    ring_bytes: int

    def send_sync(self, node: bytes, record: SyncRecord) -> None:
        """Send a record to the mirror on `node`."""
        raise RuntimeError("abstract")

    def next_number(self) -> int:
        """Number of the ring message that ends this turn.

        One ends it even if the queue has no operation for it: a mirror that joined later than the
        last message would wait for ever otherwise.
        """
        raise RuntimeError("abstract")

    def repeat(self, level: int, below: int) -> None:
        """Send over the ring what consumers have had of a level; see `RingFeed.repeat`."""
        raise RuntimeError("abstract")

    def on_synced(self, node: bytes) -> None:
        """The mirror on `node` has every message durably, and gets every operation."""
        raise RuntimeError("abstract")


class SyncSource:
    """Synchronises the mirror on `node` with its master, `queue`.

    `batch_messages`: the most messages read at a time. `rate_bytes`: bytes a second; 0: no limit.
    `is_automatic`: begins by itself, not with `start`. `lines`: its part of the log.
    """

    def __init__(
        self,
        node: bytes,
        queue: Queue,
        host: SourceHost,
        batch_messages: int,
        rate_bytes: int,
        is_automatic: bool,
        lines: SyncLines,
    ) -> None:
        self.queue: Queue = queue
        self.batch_messages: int = batch_messages
        self.is_automatic: bool = is_automatic
        self.state: int = IDLE
        # Messages sent in this attempt.
        self.sent_count: int = 0
        # Bytes of all chunks sent since the start, for figures and tests.
        self.sent_bytes: int = 0
        self._node: bytes = node
        self._host: SourceHost = host
        self._lines: SyncLines = lines
        self._pace: SyncPace = SyncPace(rate_bytes)
        # How fast messages are sent, in the state SENDING.
        self.speed: SyncSpeed = SyncSpeed()
        self._attempt: int = 0
        self._pieces: Pieces = Pieces()
        # Somebody has asked for the synchronisation, and the mirror is not recorded as in sync.
        self._is_wanted: bool = False
        # Levels to read, the lowest first, each with its priority.
        self._readers: list[tuple[int, SyncReader]] = []
        # Messages of the level `_read_level` that were read and not sent.
        self._found: deque[FoundMessage] = deque()
        self._found_bytes: int = 0
        self._read_level: int = 0
        # Messages that the attempt had to send when it began.
        self._whole_count: int = 0
        self._chunk_number: int = 0
        self._taken_number: int = 0
        # Since when the mirror owes an answer.
        self._owed_since_ms: int = 0
        self._reported_ms: int = 0
        self._now_ms: int = 0

    # -- figures -----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether `advance` has something to do, now or later."""
        return self.state not in (IDLE, IN_SYNC)

    @property
    def is_waiting(self) -> bool:
        """Whether it is known what the mirror lacks, and nothing is sent until `start`."""
        return self.state == WAITING

    @property
    def is_syncing(self) -> bool:
        """Whether messages are on their way to the mirror."""
        return self.state in (SENDING, ENDING)

    @property
    def is_shown(self) -> bool:
        """Whether operators see a synchronisation: it runs, or somebody waits for it."""
        return self._is_wanted or self.is_syncing

    @property
    def has_answered(self) -> bool:
        """Whether it is known what the mirror lacks."""
        return self.state not in (IDLE, SCANNING)

    def progress(self) -> tuple[int, int]:
        """(messages left, messages sent) of this attempt; how many are left is an estimate."""
        if self.state not in (WAITING, SENDING):
            return 0, self.sent_count
        live = 0
        for backing in self.queue.backings():
            live += int(backing.ready.count + backing.unacked.count)
        return max(0, min(self._whole_count - self.sent_count, live)), self.sent_count

    # -- what the operator or the policy does ------------------------------------------------------

    def start(self) -> None:
        """Send what the mirror misses, now or when it has made its offer."""
        self._is_wanted = True
        if self.state == WAITING:
            self._send_from_here()

    def automate(self, is_automatic: bool) -> None:
        """Obey another policy; what is being sent goes on."""
        self.is_automatic = is_automatic
        if is_automatic and self.state == WAITING:
            self._send_from_here()

    def recorded(self) -> None:
        """Note that the cluster has recorded the mirror as in sync: nobody waits any more."""
        self._is_wanted = False

    def cancel(self) -> None:
        """Send no more until `start`. The mirror keeps what it has got."""
        self._is_wanted = False
        self.is_automatic = False
        if self.state == SENDING:
            self._lines.breaks("it was cancelled", self.sent_count)
            self.state = WAITING

    def set_rate(self, rate_bytes: int) -> None:
        """Change the limit (bytes a second; 0: none)."""
        self._pace.rate_bytes = rate_bytes

    def stop(self) -> None:
        """Forget the attempt: the link is down, the mirror has left, or this is no master now."""
        self._lines.breaks("the mirror, its link or the leader is lost", self.sent_count)
        for _, reader in self._readers:
            reader.is_stopped = True
        self._readers = []
        self._found.clear()
        self._found_bytes = 0
        self._pieces.forget()
        self._attempt = 0
        self.state = IDLE

    # -- what the mirror sends ---------------------------------------------------------------------

    def take(self, step: records.SyncStep, now_ms: int) -> None:
        """Take a record of the mirror. Raises MalformedMirrorRecord."""
        self._now_ms = now_ms
        if isinstance(step, records.Levels):
            self._take_offer(step)
        elif isinstance(step, records.Chunk) or step.kind in (records.PROGRESS, records.DONE):
            raise MalformedMirrorRecord("a mirror sends no records of a master")
        elif step.attempt != self._attempt or self.state in (IDLE, SCANNING):
            if step.kind != records.CANCEL and step.attempt > self._attempt:
                # The attempt was forgotten here: let the mirror begin another one.
                self._host.send_sync(
                    self._node, records.encode_cancel(step.attempt, records.TIMED_OUT)
                )
        else:
            self._take_note(step)

    def _take_offer(self, offer: records.Levels) -> None:
        if offer.kind != records.OFFER:
            raise MalformedMirrorRecord("a mirror sends no answers")
        if offer.attempt < self._attempt or (offer.attempt == self._attempt and self.state != IDLE):
            return
        if offer.attempt > self._attempt:
            self.stop()
            self._attempt = offer.attempt
        levels = self._pieces.take(offer)
        if levels is None:
            return
        if offer.epoch > self.queue.epoch:
            self._end_attempt(records.DEPOSED)
            return
        self.state = SCANNING
        self._reported_ms = self._now_ms
        attempt = self._attempt

        def on_scanned(found: list[LevelDifference]) -> None:
            if self._attempt == attempt and self.state == SCANNING:
                self._answer(found)

        OfferScan(self.queue, levels, on_scanned).start()

    def _take_note(self, note: records.Note) -> None:
        if note.kind == records.TAKEN:
            if not self._taken_number < note.first <= self._chunk_number:
                raise MalformedMirrorRecord(f"the mirror has taken a chunk {note.first}")
            self._taken_number = note.first
            self._owed_since_ms = self._now_ms
        elif note.kind == records.SYNCED:
            if self.state != ENDING:
                raise MalformedMirrorRecord("a mirror is in sync that has not got all")
            self.state = IN_SYNC
            self._lines.ends(self.sent_count, self.sent_bytes, self._now_ms)
            self._host.on_synced(self._node)
        else:
            self.stop()

    # -- answer ------------------------------------------------------------------------------------

    def _answer(self, found: list[LevelDifference]) -> None:
        is_anew = any(difference.is_anew for difference in found)
        levels = [
            records.LevelRuns(one.level, one.end, 0, [] if is_anew else one.settled)
            for one in found
        ]
        answer = records.encode_levels(
            records.ANSWER, self._attempt, int(self.queue.epoch), levels, is_anew
        )
        for record in answer:
            self._host.send_sync(self._node, record)
        if is_anew:
            # The mirror offers an empty copy next.
            self.stop()
            return
        self.sent_count = 0
        self._whole_count = 0
        self._chunk_number = self._taken_number = 0
        # The highest level is read first: the last one of the list.
        for one in reversed(found):
            backing = self.queue.level_at(one.level)
            if backing is not None:
                # Messages that the mirror gets by chunks have their flags with them.
                self._host.repeat(one.level, one.first)
                count = int(backing.ready.count + backing.unacked.count)
                self._whole_count += max(0, count - one.common)
                reader = SyncReader(backing, one.first, one.end, self.batch_messages)
                self._readers.append((one.level, reader))
        self.state = WAITING
        if self.is_automatic or self._is_wanted:
            self._send_from_here()
        else:
            self._skip_what_is_gone()
        self.queue.backing.host.wake()

    def _send_from_here(self) -> None:
        self.state = SENDING
        self._owed_since_ms = self._now_ms
        self._lines.begins(self._whole_count - self.sent_count, self.sent_bytes, self._now_ms)
        self.speed.begin(self._now_ms, self.sent_count, self.sent_bytes)

    # -- turns -------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> int:
        """Do this turn's share; returns after how many ms to call again at the latest (0: never).

        Sends what the window and the pace admit.
        """
        self._now_ms = now_ms
        if self.state in (IDLE, IN_SYNC):
            return 0
        if self.queue.is_deleted:
            self.stop()
            return 0
        self._pace.refill(now_ms, self._host.ring_bytes)
        if self.state == SENDING:
            self._send(now_ms)
            left, sent = self.progress()
            self._lines.advances(sent, left, now_ms)
            self.speed.note(now_ms, sent, self.sent_bytes)
        is_owed = self._taken_number < self._chunk_number or self.state == ENDING
        if is_owed and now_ms - self._owed_since_ms >= ANSWER_MS:
            self._lines.breaks("the mirror does not answer", self.sent_count)
            self._end_attempt(records.TIMED_OUT)
            return 0
        if now_ms - self._reported_ms >= PROGRESS_MS:
            self._reported_ms = now_ms
            self._host.send_sync(
                self._node, records.encode_note(records.PROGRESS, self._attempt, *self.progress())
            )
            if self.state == WAITING:
                self._skip_what_is_gone()
        wait_ms = PROGRESS_MS
        if self.state == SENDING and self._is_window_open() and len(self._found) > 0:
            wait_ms = min(wait_ms, max(1, self._pace.wait_ms()))
        return wait_ms

    def _send(self, now_ms: int) -> None:
        self._read()
        while self._is_window_open() and self._pace.admits() and self._has_chunk():
            self._send_chunk(now_ms)
            self._read()
        if self.state == SENDING and len(self._readers) == 0 and len(self._found) == 0:
            self._end()

    def _is_window_open(self) -> bool:
        return self._chunk_number - self._taken_number < WINDOW

    def _has_chunk(self) -> bool:
        """Whether the next chunk is here: it is full, or nothing more comes in its level."""
        if len(self._found) == 0:
            return False
        if self._found_bytes >= CHUNK_BYTES or len(self._readers) == 0:
            return True
        level, reader = self._readers[-1]
        return level != self._read_level or not reader.is_loading

    def _send_chunk(self, now_ms: int) -> None:
        found = self._found
        writer = records.ChunkWriter()
        while len(found) > 0 and (
            writer.count == 0 or writer.size_bytes + found[0].content_bytes <= CHUNK_BYTES
        ):
            one = found.popleft()
            self._found_bytes -= int(one.content_bytes) + _MESSAGE_BYTES
            flags = records.PERSISTENT if one.is_persistent else 0
            if one.is_redelivered:
                flags |= records.REDELIVERED
            writer.add(one.seq, one.message, flags, one.expiry_ms)
        if self._taken_number == self._chunk_number:
            self._owed_since_ms = now_ms
        self._chunk_number += 1
        record = writer.encode(self._attempt, self._chunk_number, self._read_level)
        self.sent_count += int(writer.count)
        self.sent_bytes += len(record.body)
        self._pace.spend(len(record.body))
        self._host.send_sync(self._node, record)

    def _end(self) -> None:
        """Say that nothing is left to send."""
        self.state = ENDING
        self._owed_since_ms = self._now_ms
        self._host.send_sync(
            self._node, records.encode_note(records.DONE, self._attempt, self._host.next_number())
        )

    def _end_attempt(self, reason: int) -> None:
        self._host.send_sync(self._node, records.encode_cancel(self._attempt, reason))
        attempt = self._attempt
        self.stop()
        # An older attempt counts no more.
        self._attempt = attempt

    # -- messages ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read on, until enough is there or a load is under way."""
        while self._found_bytes < READ_BYTES and len(self._readers) > 0:
            level, reader = self._readers[-1]
            if reader.is_loading:
                return
            if reader.is_over():
                self._readers.pop()
                continue
            if level != self._read_level:
                if len(self._found) > 0:
                    # A chunk has messages of one level.
                    return
                self._read_level = level
            reader.read(self._on_read)

    def _on_read(self, found: list[FoundMessage]) -> None:
        for one in found:
            self._found.append(one)
            self._found_bytes += int(one.content_bytes) + _MESSAGE_BYTES
        if self.state == SENDING:
            # `advance` comes with the next turn.
            self.queue.backing.host.wake()

    def _skip_what_is_gone(self) -> None:
        """End without sending if consumers have taken all that the mirror missed."""
        if len(self._found) > 0:
            return
        while len(self._readers) > 0:
            reader = self._readers[-1][1]
            if reader.backing.has_live(reader.next_seq, reader.end):
                return
            self._readers.pop()
        self._end()
