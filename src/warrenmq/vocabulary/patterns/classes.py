"""Reads a class of a pattern, such as `[^a-z[:digit:]\\-]`, as a set of octets."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.vocabulary.patterns import octets
from warrenmq.vocabulary.patterns.errors import unsupported
from warrenmq.vocabulary.patterns.source import NOTHING, Source, take_escape

# Letters in a class, but not at the end of a range.
_NO_RANGE_ENDS: Final = tuple([b"\\" + bytes((letter,)) for letter in b"ABCGKNRXZkz"])
_NO_END: Final = "missing terminating ] for character class"


def take_class(source: Source, is_caseless: bool) -> int:
    """The octets of the class whose `[` has been read."""
    is_negated = False
    while True:
        if source.peek() == ord("^") and not is_negated:
            source.at += 1
            is_negated = True
        elif not source.skips(b"\\E") and not source.skips(b"\\Q\\E"):
            break
    members = 0
    is_quoted = False
    is_first = True
    while True:
        if source.peek() == NOTHING:
            raise source.error(_NO_END)
        if source.skips(b"\\E"):
            is_quoted = False
            continue
        if not is_quoted and source.skips(b"\\Q"):
            is_quoted = True
            continue
        if not is_quoted and source.peek() == ord("]") and not is_first:
            source.at += 1
            break
        is_first = False
        named = None if is_quoted else _posix(source, is_caseless)
        if named is not None:
            members |= named
            continue
        octet, escaped = _member(source, is_quoted)
        if octet < 0:
            members |= escaped
            continue
        last, is_quoted = _range_end(source, octet, is_quoted)
        found = octets.of_range(octet, last)
        members |= octets.both_cases(found) if is_caseless else found
    return octets.negated(members) if is_negated else members


def begins_posix(source: Source) -> bool:
    """Whether `:name:]`, `.name.]` or `=name=]` comes next, behind a `[`."""
    mark = source.peek()
    if mark == NOTHING or mark not in b":.=":
        return False
    pattern = source.pattern
    index = source.at + 1
    while index + 1 < len(pattern):
        octet = pattern[index]
        if octet == ord("\\") and pattern[index + 1] in b"]\\":
            index += 1
        elif octet == ord("]") or (octet == ord("[") and pattern[index + 1] == mark):
            return False
        elif octet == mark and pattern[index + 1] == ord("]"):
            return True
        index += 1
    return False


def _posix(source: Source, is_caseless: bool) -> int | None:
    """The octets of a named class such as `[:^alpha:]`; None if none comes next."""
    start = source.at
    if not source.skips(b"[") or not begins_posix(source):
        source.at = start
        return None
    if source.peek() != ord(":"):
        source.at = start
        raise source.error("POSIX collating elements are not supported")
    source.at += 1
    is_negated = source.skips(b"^")
    name = source.take_until(b":]")
    assert name is not None
    members = octets.POSIX.get(name)
    if members is None:
        source.at = start + 2
        if name in (b"<", b">"):
            raise unsupported("[[:<:]] and [[:>:]]", start)
        raise source.error("unknown POSIX class name")
    if is_caseless and members in (octets.UPPER, octets.LOWER):
        members = octets.UPPER | octets.LOWER
    return octets.negated(members) if is_negated else members


def _member(source: Source, is_quoted: bool) -> tuple[int, int]:
    """An octet or an escape with several: (octet, 0), or (-1, members)."""
    octet = source.take()
    if is_quoted or octet != ord("\\"):
        return octet, 0
    letter = source.peek()
    if letter == ord("b"):
        source.at += 1
        return 8, 0
    if letter == ord("N"):
        raise source.error("\\N is not supported in a class")
    return take_escape(source)


def _range_end(source: Source, first: i64, is_quoted: bool) -> tuple[int, bool]:
    """The last octet of the range that begins with `first`, itself if none follows.

    Also returns whether a quotation (`\\Q`) is open behind it.
    """
    while source.skips(b"\\E"):
        is_quoted = False
    start = source.at
    if is_quoted or not source.skips(b"-"):
        return first, is_quoted
    while source.skips(b"\\Q\\E") or source.skips(b"\\E"):
        pass
    if source.skips(b"\\Q"):
        is_quoted = True
        while source.skips(b"\\E"):
            is_quoted = False
    if source.peek() == NOTHING or (not is_quoted and source.peek() == ord("]")):
        source.at = start
        return first, False
    if not is_quoted and source.peek() == ord("[") and _is_posix(source):
        raise source.error("invalid range in character class")
    escaped = b"" if is_quoted else source.pattern[source.at : source.at + 2]
    last_at = source.at
    last = -1 if escaped in _NO_RANGE_ENDS else _member(source, is_quoted)[0]
    if last < 0:
        source.at = last_at + 1
        raise source.error("invalid range in character class")
    if last < first:
        source.at -= 1
        raise source.error("range out of order in character class")
    return last, is_quoted


def _is_posix(source: Source) -> bool:
    source.at += 1
    found = begins_posix(source)
    source.at -= 1
    return found
