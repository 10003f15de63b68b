"""Frames of a ring: what a member sends to a neighbour, encoded and decoded.

A frame is a kind (u8), the version (i64) of the sender's view, and the rest. Integers are
big-endian. A `member` is its version (i64), the length of its node's name (u8) and the name.

    ACTIVITY   entries     to the right: what is new since the last frame
    CATCHUP    entries     to the right: everything the sender knows
    ASK        members     to the left: the sender, and the members that passed its question on,
                           have no state; a neighbour that has one sends it as CATCHUP

An entry says how far the sender of the frame knows the broadcasts of one member:

    member · first i64 · acked i64 · count u32 · (length u32 · payload) * count

The payloads are the broadcasts from number `first` on; the sender knows all up to the last of them,
also when the count is 0. Everything up to number `acked` has gone all the way round; -1 is nothing.
Numbers begin at 0. A frame has at most one entry of a member. Entries and members last until the
end of the frame.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, mypyc_attr

from warrenmq.cluster.ring.view import MemberId
from warrenmq.queues.remote.link_records import (
    MalformedRecordError,
    RecordReader,
    write_name,
    write_text,
)

ACTIVITY: Final = 1
CATCHUP: Final = 2
ASK: Final = 3

# Versions of groups and numbers of broadcasts stay below it.
_NUMBER_LIMIT: Final = 1 << 62


class MalformedRingFrame(Exception):
    """Bytes that are no frame, or that contradict what the ring knows; the link must go down."""


@mypyc_attr(native_class=True, acyclic=True)
class RingEntry:
    """How far a neighbour knows the broadcasts of `sender`; see the module."""

    def __init__(self, sender: MemberId, first: i64, pubs: list[bytes], acked: i64) -> None:
        self.sender: MemberId = sender
        self.first: i64 = first
        self.pubs: list[bytes] = pubs
        self.acked: i64 = acked

    @property
    def last(self) -> i64:
        """The number up to which the neighbour knows the broadcasts; -1 if it knows none."""
        return self.first + len(self.pubs) - 1


@mypyc_attr(native_class=True, acyclic=True)
class RingFrame:
    """A decoded frame: `entries` of ACTIVITY and CATCHUP, `members` of ASK."""

    def __init__(
        self, kind: i64, version: i64, entries: list[RingEntry], members: list[MemberId]
    ) -> None:
        self.kind: i64 = kind
        self.version: i64 = version
        self.entries: list[RingEntry] = entries
        self.members: list[MemberId] = members


def encode_entries(kind: i64, version: i64, entries: list[RingEntry]) -> bytes:
    """ACTIVITY or CATCHUP."""
    out = BytesWriter()
    out.append(kind)
    write_i64_be(out, version)
    for entry in entries:
        _write_member(out, entry.sender)
        write_i64_be(out, entry.first)
        write_i64_be(out, entry.acked)
        count: i64 = len(entry.pubs)
        write_i32_be(out, i32(count))
        for payload in entry.pubs:
            write_text(out, payload)
    return out.getvalue()


def encode_ask(version: i64, members: list[MemberId]) -> bytes:
    """ASK."""
    out = BytesWriter()
    out.append(ASK)
    write_i64_be(out, version)
    for member in members:
        _write_member(out, member)
    return out.getvalue()


def decode(payload: bytes) -> RingFrame:
    """The frame in `payload`. Raises MalformedRingFrame."""
    reader = RecordReader(payload)
    entries: list[RingEntry] = []
    members: list[MemberId] = []
    try:
        kind = reader.octet()
        version = _number(reader)
        if kind == ASK:
            while reader.has_more():
                members.append(_member(reader))
        elif kind in (ACTIVITY, CATCHUP):
            senders: set[MemberId] = set()
            while reader.has_more():
                entry = _entry(reader)
                if entry.sender in senders:
                    raise MalformedRingFrame(f"a ring frame has {entry.sender!r} twice")
                senders.add(entry.sender)
                entries.append(entry)
        else:
            raise MalformedRingFrame(f"a ring frame is of the kind {kind}")
    except MalformedRecordError as error:
        raise MalformedRingFrame(f"a ring frame of {len(payload)} bytes: {error}") from error
    return RingFrame(kind, version, entries, members)


def _write_member(out: BytesWriter, member: MemberId) -> None:
    write_i64_be(out, member.version)
    write_name(out, member.node)


def _member(reader: RecordReader) -> MemberId:
    version = _number(reader)
    return MemberId(version, reader.name())


def _entry(reader: RecordReader) -> RingEntry:
    sender = _member(reader)
    first = _number(reader)
    acked = reader.integer()
    # A neighbour keeps what is not acked, so that what it sends begins behind that.
    if acked < -1 or acked >= first:
        raise MalformedRingFrame(f"broadcasts from {first} on are acked up to {acked}")
    pubs: list[bytes] = []
    count = reader.number()
    while count > 0:
        pubs.append(reader.text())
        count -= 1
    return RingEntry(sender, first, pubs, acked)


def _number(reader: RecordReader) -> i64:
    number = reader.integer()
    if number < 0 or number >= _NUMBER_LIMIT:
        raise MalformedRingFrame(f"a ring frame has the number {number}")
    return number
