"""Sets of octets as integers of 256 bits: bit n is set when octet n is a member.

RabbitMQ gives PCRE octets, not characters, and the tables of Erlang's PCRE read octets from 128 on
as Latin 1: `\\w` and `[[:alpha:]]` have the octet 0xE9, `\\s` and `\\d` have ASCII only.
"""

from __future__ import annotations

import unicodedata
from typing import Final

EVERY: Final = (1 << 256) - 1


def of_range(first: int, last: int) -> int:
    """The octets from `first` to `last`, both included."""
    return (1 << (last + 1)) - (1 << first)


def of_octets(octets: bytes) -> int:
    """The octets that occur in `octets`."""
    members = 0
    for octet in octets:
        members |= 1 << octet
    return members


def negated(members: int) -> int:
    """All other octets."""
    return EVERY & ~members


def ranges(members: int) -> list[tuple[int, int]]:
    """The members as ascending ranges (first, last)."""
    found: list[tuple[int, int]] = []
    first = -1
    for octet in range(257):
        is_member = octet < 256 and members >> octet & 1 == 1
        if is_member and first < 0:
            first = octet
        elif not is_member and first >= 0:
            found.append((first, octet - 1))
            first = -1
    return found


def _of_categories(*categories: str) -> int:
    """The octets whose Latin 1 character is of one of these Unicode categories (`L`, `Lu`)."""
    members = 0
    for octet in range(256):
        if unicodedata.category(chr(octet)).startswith(categories):
            members |= 1 << octet
    return members


NEWLINE: Final = of_octets(b"\n")
DIGIT: Final = of_octets(b"0123456789")
SPACE: Final = of_octets(b"\t\n\x0b\x0c\r ")
UPPER: Final = _of_categories("Lu")
LOWER: Final = _of_categories("Ll", "Lo")
WORD: Final = DIGIT | UPPER | LOWER | of_octets(b"_")
BLANK: Final = of_octets(b"\t \xa0")
VERTICAL: Final = of_octets(b"\n\x0b\x0c\r\x85")
_CONTROL: Final = _of_categories("Cc")
_GRAPH: Final = negated(_CONTROL | of_octets(b" "))

# Sets of escapes; the capital letter of each has all other octets.
ESCAPES: Final[dict[int, int]] = {
    ord("d"): DIGIT, ord("h"): BLANK, ord("s"): SPACE, ord("v"): VERTICAL, ord("w"): WORD
}  # fmt: skip

# Erlang's `[[:ascii:]]` has every octet.
POSIX: Final[dict[bytes, int]] = {
    b"alnum": DIGIT | UPPER | LOWER,
    b"alpha": UPPER | LOWER,
    b"ascii": EVERY,
    b"blank": of_octets(b"\t "),
    b"cntrl": _CONTROL,
    b"digit": DIGIT,
    b"graph": _GRAPH,
    b"lower": LOWER,
    b"print": _GRAPH | of_octets(b" "),
    b"punct": _GRAPH & ~(DIGIT | UPPER | LOWER),
    b"space": SPACE,
    b"upper": UPPER,
    b"word": WORD,
    b"xdigit": of_octets(b"0123456789ABCDEFabcdef"),
}

_LATIN: Final = _of_categories("L") & ~of_octets(b"\xb5")
_CATEGORIES: Final = (
    "C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn",
    "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm",
    "So", "Z", "Zl", "Zp", "Zs",
)  # fmt: skip

# Properties of `\p{..}` by name: categories of Unicode, and the scripts of Latin 1.
PROPERTIES: Final[dict[bytes, int]] = {
    b"Any": EVERY,
    b"Common": negated(_LATIN),
    b"L&": _of_categories("Lu", "Ll", "Lt"),
    b"Latin": _LATIN,
    b"Xan": _of_categories("L", "N"),
    b"Xps": SPACE | BLANK | VERTICAL,
    b"Xsp": SPACE | BLANK | VERTICAL,
    b"Xwd": _of_categories("L", "N") | of_octets(b"_"),
} | {name.encode(): _of_categories(name) for name in _CATEGORIES}


def both_cases(members: int) -> int:
    """The members and, of the letters among them, the other case."""
    upper = members & UPPER
    lower = members & (UPPER << 32)
    return members | upper << 32 | lower >> 32
