"""The records that nodes send each other about queues, encoded and decoded without objects.

A frame is a sequence of records, handled in order. The first byte of a record is its kind. Integers
are big-endian: u8, u32, i64. A `name` is a length (u8) and bytes, a `text` a length (u32) and
bytes, a `message` its address (two names: exchange, routing key), a text with its properties and a
text with its body. The node of the clients draws the numbers of queues, parties, calls and
consumers; they count for one link: a new link starts over.

Operations, from the node of the clients to the node of the queue:

    OPEN       queue u32, birth i64, vhost name, queue name     what the number of a queue means
    CLOSE      queue u32                                        the number is used no more
    PUBLISH    queue u32, flags u8, priority u8, [expiration ms i64], message
    AWAIT      queue u32, party i64        asks for FINISHED of all that came before for the queue
    AWAIT_LAST queue u32, party i64        the same, but only the last publish can make it REFUSED
    SETTLE     queue u32, level u8, reason u8, first i64, last i64   messages leave; see below
    RETURN     queue u32, level u8, flags u8, count u32, (first i64, last i64) * count
    CREDIT     consumer u32, flags u8, messages u32, bytes i64
    CANCEL     consumer u32
    REPLY      vhost name, reply name, message                  a direct reply
    CALL       call i64, kind u8, queue u32, arguments of the kind
    STALE      queue u32, level u8, reason u8, epoch i64, seq i64   see below

Events, from the node of the queue:

    DELIVER    consumer u32, delivery, message
    READY      consumer u32                a message is there that the consumer has no credit for
    UNUSED     consumer u32, messages u32  so much credit is over: it asked, and no message is there
    CANCELLED  consumer u32                the last record of a consumer: CANCEL, or a deleted queue
    FINISHED   first party i64, last party i64, outcome u8
    APPLIED    queue u32, bytes i64        so many bytes of publishes need no more room
    ANSWER     call i64, code u32, is_fatal u8, text, first i64, second i64
    GOT        call i64, ready count i64, delivery, message

A `delivery` is level u8, flags u8, seq i64 and, with the flag COUNTED, the number of returns u32.
Level and seq identify a message of a queue. SETTLE and RETURN count only for messages that this
very link has delivered and that are not settled: an ack from before a link went down settles
nothing.

A queue with copies on several nodes may change its master. STALE settles a message that an earlier
master has delivered, or this one over an earlier link, if it is ready and was published in `epoch`
or before: epochs number the masters of a queue, and a seq id means the same message on every copy.
A call that reaches a node which is not the master gets an ANSWER with the code MOVED.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

from warrenmq.store.model.message import Message

OPEN: Final = 1
CLOSE: Final = 2
PUBLISH: Final = 3
AWAIT: Final = 4
SETTLE: Final = 5
RETURN: Final = 6
CREDIT: Final = 7
CANCEL: Final = 8
REPLY: Final = 9
CALL: Final = 10
STALE: Final = 11
AWAIT_LAST: Final = 12

DELIVER: Final = 33
READY: Final = 34
UNUSED: Final = 35
CANCELLED: Final = 36
FINISHED: Final = 37
APPLIED: Final = 38
ANSWER: Final = 39
GOT: Final = 40

# Flags of PUBLISH: see `MessageTaker.publish`.
PERSISTENT: Final = 1
KNOWN: Final = 2
REFUSABLE: Final = 4
EXPIRES: Final = 8
# Flag of RETURN: no client has had the messages.
UNSEEN: Final = 1
# Flag of CREDIT: what the queue cannot use at once comes back as UNUSED.
ASKS: Final = 1
# Flags of a delivery.
REDELIVERED: Final = 1
COUNTED: Final = 2

# Outcomes of a party.
DONE: Final = 0
FAILED: Final = 1
REFUSED: Final = 2

# Kinds of calls, with their arguments.
CALL_COUNTS: Final = 1
# no_ack u8
CALL_GET: Final = 2
# consumer u32, flags u8, priority i64, prefetch u32, tag name, credit u32, bytes i64
CALL_CONSUME: Final = 3
CALL_PURGE: Final = 4
# flags u8
CALL_DELETE: Final = 5
# Answered when all that came before is applied.
CALL_SYNC: Final = 6
# vhost name, reply name; the queue's number is 0. Code 404: no channel consumes these replies.
CALL_PROBE: Final = 7

# Code of an ANSWER, and no code of the protocol: another node has the queue now.
MOVED: Final = 1

# The highest number of a party or a seq id.
NUMBER_MAX: Final = (1 << 62) - 1

# Flags of CALL_CONSUME.
NO_ACK: Final = 1
EXCLUSIVE: Final = 2
# Flags of CALL_DELETE.
IF_EMPTY: Final = 1
IF_UNUSED: Final = 2


def write_name(out: BytesWriter, name: bytes) -> None:
    """Append a name of at most 255 bytes."""
    out.append(len(name))
    out.write(name)


def write_text(out: BytesWriter, text: bytes) -> None:
    """Append bytes with their length."""
    size: i64 = len(text)
    write_i32_be(out, i32(size))
    out.write(text)


def write_message(out: BytesWriter, message: Message) -> None:
    """Append the content of a message."""
    out.write(message.address)
    write_text(out, message.properties)
    write_text(out, message.body)


def write_open(out: BytesWriter, queue: i64, birth: i64, vhost: bytes, name: bytes) -> None:
    """Append OPEN."""
    out.append(OPEN)
    write_i32_be(out, i32(queue))
    write_i64_be(out, birth)
    write_name(out, vhost)
    write_name(out, name)


def write_publish(
    out: BytesWriter, queue: i64, flags: i64, priority: i64, expiration_ms: i64, message: Message
) -> None:
    """Append PUBLISH; `expiration_ms` counts with the flag EXPIRES only."""
    out.append(PUBLISH)
    write_i32_be(out, i32(queue))
    out.append(flags)
    out.append(priority)
    if (flags & EXPIRES) != 0:
        write_i64_be(out, expiration_ms)
    write_message(out, message)


def write_runs(out: BytesWriter, queue: i64, level: i64, flags: i64, seqs: list[i64]) -> None:
    """Append RETURN for the messages of a level with `seqs`, which ascend."""
    runs: list[i64] = []
    for seq in seqs:
        if len(runs) > 0 and runs[-1] == seq - 1:
            runs[-1] = seq
        else:
            runs.append(seq)
            runs.append(seq)
    out.append(RETURN)
    write_i32_be(out, i32(queue))
    out.append(level)
    out.append(flags)
    count: i64 = len(runs)
    write_i32_be(out, i32(count >> 1))
    for seq in runs:
        write_i64_be(out, seq)


def write_settle(
    out: BytesWriter, queue: i64, level: i64, reason: i64, first: i64, last: i64
) -> None:
    """Append SETTLE."""
    out.append(SETTLE)
    write_i32_be(out, i32(queue))
    out.append(level)
    out.append(reason)
    write_i64_be(out, first)
    write_i64_be(out, last)


def write_stale(
    out: BytesWriter, queue: i64, level: i64, reason: i64, epoch: i64, seq: i64
) -> None:
    """Append STALE."""
    out.append(STALE)
    write_i32_be(out, i32(queue))
    out.append(level)
    out.append(reason)
    write_i64_be(out, epoch)
    write_i64_be(out, seq)


def write_credit(out: BytesWriter, consumer: i64, flags: i64, messages: i64, size: i64) -> None:
    """Append CREDIT for so many more messages, and `size` more bytes."""
    out.append(CREDIT)
    write_i32_be(out, i32(consumer))
    out.append(flags)
    write_i32_be(out, i32(messages))
    write_i64_be(out, size)


def write_number(out: BytesWriter, kind: i64, number: i64) -> None:
    """Append a record that has the number of a queue or consumer only."""
    out.append(kind)
    write_i32_be(out, i32(number))


def write_unused(out: BytesWriter, consumer: i64, messages: i64) -> None:
    """Append UNUSED."""
    out.append(UNUSED)
    write_i32_be(out, i32(consumer))
    write_i32_be(out, i32(messages))


def write_consumer(
    out: BytesWriter,
    number: i64,
    flags: i64,
    priority: i64,
    prefetch: i64,
    tag: bytes,
    messages: i64,
    size: i64,
) -> None:
    """Append the arguments of CALL_CONSUME; `messages` and `size` are its first credit."""
    write_i32_be(out, i32(number))
    out.append(flags)
    write_i64_be(out, priority)
    write_i32_be(out, i32(prefetch))
    write_name(out, tag)
    write_i32_be(out, i32(messages))
    write_i64_be(out, size)


def write_number_and(out: BytesWriter, kind: i64, number: i64, value: i64) -> None:
    """Append a record with the number of a queue and one i64: AWAIT, AWAIT_LAST or APPLIED."""
    out.append(kind)
    write_i32_be(out, i32(number))
    write_i64_be(out, value)


def write_call(out: BytesWriter, call: i64, kind: i64, queue: i64) -> None:
    """Append CALL up to the arguments of the kind."""
    out.append(CALL)
    write_i64_be(out, call)
    out.append(kind)
    write_i32_be(out, i32(queue))


def write_answer(
    out: BytesWriter, call: i64, code: i64, is_fatal: bool, text: bytes, first: i64, second: i64
) -> None:
    """Append ANSWER."""
    out.append(ANSWER)
    write_i64_be(out, call)
    write_i32_be(out, i32(code))
    out.append(1 if is_fatal else 0)
    write_text(out, text)
    write_i64_be(out, first)
    write_i64_be(out, second)


def write_delivery(
    out: BytesWriter, level: i64, seq: i64, redelivered: bool, returned: i64
) -> None:
    """Append a delivery, which the message follows."""
    flags: i64 = REDELIVERED if redelivered else 0
    if returned > 0:
        flags |= COUNTED
    out.append(level)
    out.append(flags)
    write_i64_be(out, seq)
    if returned > 0:
        write_i32_be(out, i32(returned))


class MalformedRecordError(Exception):
    """A frame with bytes that are no records; the link must go down."""


class RecordReader:
    """Reads the records of a frame; raises MalformedRecordError rather than read past its end."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes = data
        # Where the next value begins.
        self.at: i64 = 0
        self._end: i64 = len(data)

    def has_more(self) -> bool:
        """Whether the frame has another record."""
        return self.at < self._end

    def skip(self, kind: i64) -> bool:
        """Whether a record of `kind` follows; its first octet is read then."""
        if self.at >= self._end or i64(self._data[self.at]) != kind:
            return False
        self.at += 1
        return True

    def octet(self) -> i64:
        """The next u8."""
        at = self._take(1)
        return i64(self._data[at])

    def number(self) -> i64:
        """The next u32."""
        at = self._take(4)
        return i64(read_i32_be(self._data, at)) & 0xFFFFFFFF

    def integer(self) -> i64:
        """The next i64."""
        at = self._take(8)
        return read_i64_be(self._data, at)

    def run(self) -> tuple[i64, i64]:
        """The first and the last number of the next run (two i64), which has at least one.

        Both are far enough from the ends of their type that sums and differences fit in it too.
        """
        first = self.integer()
        last = self.integer()
        if first < 0 or last < first or last > NUMBER_MAX:
            raise MalformedRecordError(f"no run goes from {first} to {last}")
        return first, last

    def name(self) -> bytes:
        """The next name."""
        size = self.octet()
        at = self._take(size)
        return self._data[at : at + size]

    def text(self) -> bytes:
        """The next text."""
        size = self.number()
        at = self._take(size)
        return self._data[at : at + size]

    def message(self, persistent: bool, now_ms: i64) -> Message:
        """The next message."""
        start = self.at
        self._take(self.octet())
        self._take(self.octet())
        address = self._data[start : self.at]
        properties = self.text()
        return Message(address, properties, self.text(), persistent, now_ms)

    def _take(self, size: i64) -> i64:
        at = self.at
        if size > self._end - at:
            raise MalformedRecordError("a record ends in the middle")
        self.at = at + size
        return at
