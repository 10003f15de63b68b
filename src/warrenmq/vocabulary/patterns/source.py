"""The octets of a pattern while they are read, and the escapes that stand for octets."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.octets import ESCAPES, PROPERTIES, negated

# `peek` returns NOTHING at the end of the pattern.
NOTHING: Final = -1

_CONTROLS: Final[dict[int, int]] = {
    ord("a"): 7, ord("e"): 27, ord("f"): 12, ord("n"): 10, ord("r"): 13, ord("t"): 9
}  # fmt: skip
_HEX: Final = b"0123456789abcdefABCDEF"
_NO_HEX: Final = "non-hex character in \\x{} (closing brace missing?)"
_NO_OCTAL: Final = "non-octal character in \\o{} (closing brace missing?)"
NO_LETTER: Final = "PCRE does not support \\L, \\l, \\N{name}, \\U, or \\u"
_NO_NUMBER: Final = "octal value is greater than \\377 in 8-bit non-UTF-8 mode"


@final
class Source:
    """A pattern and the index `at` of the octet to read next."""

    def __init__(self, pattern: bytes) -> None:
        self.pattern: bytes = pattern
        self.at: i64 = 0

    def peek(self) -> i64:
        """The next octet, NOTHING at the end."""
        return self.pattern[self.at] if self.at < len(self.pattern) else NOTHING

    def take(self) -> i64:
        """The next octet, which is read; NOTHING at the end."""
        octet = self.peek()
        self.at += 1
        return octet

    def skips(self, text: bytes) -> bool:
        """Read `text` if it comes next."""
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def take_until(self, end: bytes) -> bytes | None:
        """Read up to and with the next `end`; returns the text before it, None if there is none."""
        found = self.pattern.find(end, self.at)
        if found < 0:
            return None
        text = self.pattern[self.at : found]
        self.at = found + len(end)
        return text

    def take_some(self, members: bytes, most: i64) -> bytes:
        """The next octets that occur in `members`, at most `most`, which are read."""
        start = self.at
        end = min(start + most, len(self.pattern))
        while self.at < end and self.pattern[self.at] in members:
            self.at += 1
        return self.pattern[start : self.at]

    def error(self, reason: str) -> PatternError:
        """The error with this reason at the place where reading is."""
        return PatternError(reason, min(self.at, len(self.pattern)))


def take_escape(source: Source) -> tuple[int, int]:
    """An octet or a set of octets after a backslash: (octet, 0), or (-1, members)."""
    letter = source.take()
    if letter == NOTHING:
        source.at -= 1
        raise source.error("\\ at end of pattern")
    if letter in _CONTROLS:
        return _CONTROLS[letter], 0
    if letter in ESCAPES:
        return -1, ESCAPES[letter]
    if letter | 32 in ESCAPES:
        return -1, negated(ESCAPES[letter | 32])
    if letter == ord("x"):
        return _hexadecimal(source), 0
    if letter == ord("o"):
        return _braced(source, b"01234567", 8, _NO_OCTAL), 0
    if letter == ord("c"):
        return _control(source), 0
    if letter == ord("p") or letter == ord("P"):
        members = _property(source)
        return -1, members if letter == ord("p") else negated(members)
    if letter in b"01234567":
        source.at -= 1
        value = int(source.take_some(b"01234567", 3), 8)
        if value > 255:
            source.at -= 1
            raise source.error(_NO_NUMBER)
        return value, 0
    if letter in b"LlUu":
        source.at -= 1
        raise source.error(NO_LETTER)
    return letter, 0


def _hexadecimal(source: Source) -> int:
    if source.peek() == ord("{"):
        return _braced(source, _HEX, 16, _NO_HEX)
    digits = source.take_some(_HEX, 2)
    return int(digits, 16) if digits else 0


def _braced(source: Source, digits: bytes, base: int, invalid: str) -> int:
    if not source.skips(b"{"):
        raise source.error("missing opening brace after \\o")
    text = source.take_some(digits, len(source.pattern))
    if not text and source.peek() == ord("}"):
        source.at -= 2 if base == 8 else 0
        raise source.error("digits missing in \\x{} or \\o{}")
    if text and int(text, base) > 255:
        raise source.error("character value in \\x{} or \\o{} is too large")
    if not text or not source.skips(b"}"):
        raise source.error(invalid)
    return int(text, base)


def _control(source: Source) -> int:
    letter = source.take()
    if letter == NOTHING:
        source.at -= 1
        raise source.error("\\c at end of pattern")
    if letter > 127:
        source.at -= 1
        raise source.error("\\c must be followed by an ASCII character")
    return (letter - 32 if ord("a") <= letter <= ord("z") else letter) ^ 64


def _property(source: Source) -> int:
    """The octets of a property: `L`, `{Lu}`, `{^Lu}`."""
    is_braced = source.skips(b"{")
    if is_braced:
        is_negated = source.skips(b"^")
        name = source.take_until(b"}")
        if name is None:
            source.at = len(source.pattern)
            raise source.error("malformed \\P or \\p sequence")
    else:
        is_negated = False
        if source.peek() == NOTHING:
            raise source.error("malformed \\P or \\p sequence")
        name = bytes((source.take(),))
    members = PROPERTIES.get(name)
    if members is None:
        source.at -= int(is_braced)
        raise source.error("unknown property name after \\P or \\p")
    return negated(members) if is_negated else members
