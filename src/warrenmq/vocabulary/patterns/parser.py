"""Reads a pattern as PCRE 8 does in RabbitMQ: on octets, without options, `\\n` as the newline.

`parse` applies options (`(?i)`, `(?x)`) and names while it reads, so that the tree (`nodes.py`) has
none. A pattern that PCRE refuses is refused with PCRE's text. Recursion, conditions, verbs and a
few rare constructs are refused as not supported.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from warrenmq.vocabulary.patterns import nodes, octets
from warrenmq.vocabulary.patterns.classes import begins_posix, take_class
from warrenmq.vocabulary.patterns.errors import PatternError, unsupported
from warrenmq.vocabulary.patterns.source import NO_LETTER, NOTHING, Source, take_escape

# Options of a part of the pattern.
_CASELESS: Final = 1
_LINES: Final = 2
_DOT_ALL: Final = 4
_EXTENDED: Final = 8
_UNGREEDY: Final = 16
_OPTIONS: Final[dict[int, int]] = {
    ord("i"): _CASELESS, ord("m"): _LINES, ord("s"): _DOT_ALL, ord("x"): _EXTENDED,
    ord("U"): _UNGREEDY,
}  # fmt: skip

# Octets of a pattern, which RabbitMQ limits to 64 KiB of PCRE's code. Compiling takes at most about
# 40 ms.
_LENGTH_MAX: Final = 8192
# Groups in groups; PCRE takes 250. Python's stack must suffice for those that walk the tree.
_DEPTH_MAX: Final = 100
_TIMES_MAX: Final = 65535
_NAME_LENGTH_MAX: Final = 32
_DIGITS: Final = b"0123456789"

_NO_REPEAT: Final = "nothing to repeat"
_NO_GROUP: Final = "reference to non-existent subpattern"
_NO_OPTION: Final = "unrecognized character after (? or (?-"
_NO_NAME_END: Final = "syntax error in subpattern name (missing terminator)"
_PLACES: Final[dict[int, int]] = {
    ord("A"): nodes.START, ord("G"): nodes.START, ord("Z"): nodes.LAST, ord("z"): nodes.END, ord("b"): nodes.BORDER,
    ord("B"): nodes.NO_BORDER,
}  # fmt: skip


def parse(pattern: bytes) -> nodes.Node:
    """The tree of `pattern`; PatternError if PCRE refuses it or warren cannot keep its meaning."""
    if len(pattern) > _LENGTH_MAX:
        raise PatternError("regular expression is too large", _LENGTH_MAX)
    return _Parser(pattern).tree()


@final
class _Parser:
    def __init__(self, pattern: bytes) -> None:
        self._source: Source = Source(pattern)
        self._options: i64 = 0
        # Between \Q and \E.
        self._is_quoted: bool = False
        self._depth: i64 = 0
        self._groups: i64 = 0
        self._numbers: dict[bytes, i64] = {}
        # References with a number, and with the name of a group that may come later.
        self._references: list[tuple[nodes.Reference, i64]] = []
        self._named: list[tuple[nodes.Reference, bytes, i64]] = []

    def tree(self) -> nodes.Node:
        branches = self._branches(False)
        if self._source.peek() == ord(")"):
            raise self._source.error("unmatched parentheses")
        for reference, name, place in self._named:
            reference.number = self._numbers.get(name, nodes.UNBOUNDED)
            self._references.append((reference, place))
        for reference, place in self._references:
            if not 0 < reference.number <= self._groups:
                raise PatternError(_NO_GROUP, place)
        return _choice(branches)

    # -- branches and their parts ------------------------------------------------------------------

    def _branches(self, is_behind: bool) -> list[nodes.Node]:
        """The alternatives up to `)` or to the end, which is not read.

        `is_behind`: they stand in a lookbehind, and PCRE wants a fixed length of each.
        """
        branches: list[nodes.Node] = []
        while True:
            branch = self._branch()
            if is_behind and not branch.has_fixed_length():
                raise self._source.error("lookbehind assertion is not fixed length")
            branches.append(branch)
            if self._source.peek() != ord("|"):
                return branches
            self._source.at += 1

    def _branch(self) -> nodes.Node:
        parts: list[nodes.Node] = []
        while True:
            self._skip_ignored()
            octet = self._source.peek()
            if octet == NOTHING or (not self._is_quoted and octet in b"|)"):
                break
            part = self._part()
            if part is None:
                continue
            self._skip_ignored()
            parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else nodes.Sequence(parts)

    def _skip_ignored(self) -> None:
        """Read comments, and the marks at the ends of quotations."""
        source = self._source
        while True:
            if source.skips(b"\\E"):
                self._is_quoted = False
            elif self._is_quoted:
                return
            elif source.skips(b"\\Q"):
                self._is_quoted = True
            elif not self._skips_comment():
                return

    def _skips_comment(self) -> bool:
        """Read a comment or, with the option x, white space, if it comes next."""
        source = self._source
        if source.skips(b"(?#"):
            if source.take_until(b")") is None:
                source.at = len(source.pattern)
                raise source.error("missing ) after comment")
            return True
        octet = source.peek()
        if octet == NOTHING or not self._options & _EXTENDED:
            return False
        if octet == ord("#"):
            if source.take_until(b"\n") is None:
                source.at = len(source.pattern)
            return True
        if not octets.SPACE >> int(octet) & 1:
            return False
        source.at += 1
        return True

    def _part(self) -> nodes.Node | None:
        """The next part without its quantifier; None if it sets options only."""
        source = self._source
        octet = source.take()
        if self._is_quoted:
            return self._literal(octet)
        if octet == ord("\\"):
            return self._escape()
        if octet == ord("["):
            if begins_posix(source):
                is_collating = source.peek() != ord(":")
                source.at -= 1
                raise source.error(
                    "POSIX collating elements are not supported"
                    if is_collating
                    else "POSIX named classes are supported only within a class"
                )
            return nodes.Octet(take_class(source, bool(self._options & _CASELESS)))
        if octet == ord("("):
            return self._group()
        if octet == ord("."):
            return nodes.Octet(
                octets.EVERY if self._options & _DOT_ALL else octets.negated(octets.NEWLINE)
            )
        if octet == ord("^"):
            return nodes.Place(nodes.LINE_START if self._options & _LINES else nodes.START)
        if octet == ord("$"):
            return nodes.Place(nodes.LINE_END if self._options & _LINES else nodes.LAST)
        source.at -= 1
        if self._quantifier() is not None:
            source.at -= 1
            raise source.error(_NO_REPEAT)
        source.at += 1
        return self._literal(octet)

    def _literal(self, octet: i64) -> nodes.Node:
        members = 1 << int(octet)
        return nodes.Octet(octets.both_cases(members) if self._options & _CASELESS else members)

    # -- quantifiers -------------------------------------------------------------------------------

    def _repeated(self, part: nodes.Node) -> nodes.Node:
        """The part with the quantifier that comes next, if one does."""
        source = self._source
        if self._is_quoted:
            return part
        bounds = self._quantifier()
        if bounds is None:
            return part
        if isinstance(part, nodes.Place):
            source.at -= 1
            raise source.error(_NO_REPEAT)
        low, high = bounds
        is_lazy = bool(self._options & _UNGREEDY)
        mode: i64 = nodes.LAZY if is_lazy else nodes.GREEDY
        while self._skips_comment():
            pass
        if source.skips(b"?"):
            mode = nodes.GREEDY if is_lazy else nodes.LAZY
        elif source.skips(b"+"):
            mode = nodes.POSSESSIVE
        if isinstance(part, nodes.Look):
            # To look again finds the same.
            return part if low > 0 else nodes.Repeat(part, 0, min(high, 1), mode)
        return nodes.Repeat(part, low, high, mode)

    def _quantifier(self) -> tuple[i64, i64] | None:
        """The bounds of the quantifier that comes next, which is read; None if none does."""
        source = self._source
        octet = source.peek()
        if octet == ord("*") or octet == ord("+") or octet == ord("?"):
            source.at += 1
            return (1 if octet == ord("+") else 0), (1 if octet == ord("?") else nodes.UNBOUNDED)
        start = source.at
        if not source.skips(b"{"):
            return None
        first = source.take_some(_DIGITS, len(source.pattern))
        has_comma = source.skips(b",")
        last = source.take_some(_DIGITS, len(source.pattern)) if has_comma else first
        if not first or not source.skips(b"}"):
            # Text: `{`, `{,2}`, `{a}`.
            source.at = start
            return None
        source.at -= 1
        low = int(first)
        high = int(last) if last else _TIMES_MAX
        if low > _TIMES_MAX or high > _TIMES_MAX:
            raise source.error("number too big in {} quantifier")
        if high < low:
            raise source.error("numbers out of order in {} quantifier")
        source.at += 1
        return low, high if last else nodes.UNBOUNDED

    # -- escapes -----------------------------------------------------------------------------------

    def _escape(self) -> nodes.Node:
        source = self._source
        letter = source.peek()
        place = _PLACES.get(letter)
        if place is not None:
            source.at += 1
            return nodes.Place(place)
        if letter == ord("g") or letter == ord("k"):
            return self._reference_escape()
        if ord("1") <= letter <= ord("9"):
            start = source.at
            digits = source.take_some(_DIGITS, len(source.pattern))
            number = int(digits) if len(digits) < 6 else nodes.UNBOUNDED
            if number < 8 or number <= self._groups:
                return self._reference(number)
            source.at = start
        elif letter == ord("N"):
            return self._no_newline()
        elif letter == ord("C"):
            source.at += 1
            return nodes.Octet(octets.EVERY)
        elif letter == ord("K"):
            # Moves the start of the text that matched, which nobody asks for.
            source.at += 1
            return nodes.Place(nodes.ANYWHERE)
        elif letter == ord("R"):
            source.at += 1
            pair: list[nodes.Node] = [
                nodes.Octet(octets.of_octets(b"\r")),
                nodes.Octet(octets.NEWLINE),
            ]
            return nodes.Atomic(nodes.Choice([nodes.Sequence(pair), nodes.Octet(octets.VERTICAL)]))
        elif letter == ord("X"):
            raise unsupported("\\X", source.at - 1)
        octet, members = take_escape(source)
        return self._literal(octet) if octet >= 0 else nodes.Octet(members)

    def _no_newline(self) -> nodes.Node:
        source = self._source
        source.at += 1
        start = source.at
        if source.peek() == ord("{") and self._quantifier() is None:
            # The name of a character: `\N{U+41}`.
            source.at -= 1
            raise source.error(NO_LETTER)
        source.at = start
        return nodes.Octet(octets.negated(octets.NEWLINE))

    def _reference_escape(self) -> nodes.Node:
        r"""A reference after `\g` or `\k`."""
        source = self._source
        letter = source.take()
        opening = source.peek()
        ends = {ord("{"): b"}", ord("<"): b">", ord("'"): b"'"}
        if letter == ord("g") and (opening == ord("<") or opening == ord("'")):
            raise unsupported("a call of a subpattern", source.at - 2)
        if letter == ord("k"):
            if opening not in ends:
                source.at -= 1
                raise source.error(
                    "\\k is not followed by a braced, angle-bracketed, or quoted name"
                )
            source.at += 1
            return self._named_reference(ends[opening])
        is_braced = source.skips(b"{")
        sign = source.take_some(b"-", 1)
        digits = source.take_some(_DIGITS, 6)
        if is_braced and not sign and not digits:
            return self._named_reference(b"}")
        number: i64 = int(digits) if digits else 0
        if number == 0 or (is_braced and not source.skips(b"}")):
            source.at -= 1
            raise source.error("a numbered reference must not be zero")
        if sign and number > self._groups:
            source.at -= 1
            raise source.error(_NO_GROUP)
        return self._reference(self._groups + 1 - number if sign else number)

    def _named_reference(self, end: bytes) -> nodes.Node:
        source = self._source
        name = self._name(end)
        reference = nodes.Reference(0, bool(self._options & _CASELESS))
        self._named.append((reference, name, source.at - 1))
        return reference

    def _reference(self, number: i64) -> nodes.Node:
        reference = nodes.Reference(number, bool(self._options & _CASELESS))
        self._references.append((reference, len(self._source.pattern)))
        return reference

    def _name(self, end: bytes) -> bytes:
        """The name of a group, up to `end`, which is read as well."""
        source = self._source
        start = source.at
        while source.peek() != NOTHING and octets.WORD >> int(source.peek()) & 1:
            source.at += 1
        name = source.pattern[start : source.at]
        if name[:1].isdigit():
            source.at = start
            raise source.error("group name must start with a non-digit")
        if len(name) > _NAME_LENGTH_MAX:
            raise source.error("subpattern name is too long (maximum 32 characters)")
        if not name:
            raise source.error("subpattern name expected")
        if not source.skips(end):
            raise source.error(_NO_NAME_END)
        return name

    # -- groups ------------------------------------------------------------------------------------

    def _group(self) -> nodes.Node | None:
        """The group whose `(` has been read; None if it sets options only."""
        source = self._source
        if self._depth >= _DEPTH_MAX:
            raise unsupported(f"more than {_DEPTH_MAX} parentheses in each other", source.at)
        self._depth += 1
        found = self._special_group() if source.skips(b"?") else self._plain_group()
        self._depth -= 1
        return found

    def _plain_group(self) -> nodes.Node:
        source = self._source
        if source.peek() == ord("*"):
            following = source.pattern[source.at + 1 : source.at + 2]
            if following.isalpha() or following == b":":
                raise unsupported("a verb", source.at - 1)
        return self._capture(b"")

    def _special_group(self) -> nodes.Node | None:
        source = self._source
        start = source.at - 2
        if source.skips(b":"):
            return self._inner(self._options)
        if source.skips(b">"):
            return nodes.Atomic(self._inner(self._options))
        if source.skips(b"=") or source.skips(b"!"):
            is_negative = source.pattern[source.at - 1] == ord("!")
            return nodes.Look(self._inner_branches(self._options, False), True, is_negative)
        if source.skips(b"<=") or source.skips(b"<!"):
            is_negative = source.pattern[source.at - 1] == ord("!")
            return nodes.Look(self._inner_branches(self._options, True), False, is_negative)
        if source.skips(b"P="):
            return self._named_reference(b")")
        if source.skips(b"P<") or source.skips(b"<"):
            if source.peek() == NOTHING or not (octets.WORD >> int(source.peek()) & 1):
                raise source.error("unrecognized character after (?<")
            return self._capture(b">")
        if source.skips(b"'"):
            return self._capture(b"'")
        following = source.pattern[source.at : source.at + 2]
        if following[:1] in (b"|", b"(", b"C", b"R", b"&") or following == b"P>":
            raise unsupported(f"a group that begins with (?{following[:1].decode()}", start)
        if following.lstrip(b"+-")[:1].isdigit():
            raise unsupported("a call of a subpattern", start)
        return self._option_group()

    def _capture(self, end_of_name: bytes) -> nodes.Node:
        """A group that references repeat, with a name up to `end_of_name` if it has one."""
        name = self._name(end_of_name) if end_of_name else b""
        self._groups += 1
        number = self._groups
        if name:
            if name in self._numbers:
                self._source.at -= 1
                raise self._source.error("two named subpatterns have the same name")
            self._numbers[name] = number
        return nodes.Group(self._inner(self._options), number)

    def _option_group(self) -> nodes.Node | None:
        """`(?i)`, which sets options up to the end of the group around it, or `(?i:...)`."""
        source = self._source
        options = self._options
        is_set = True
        while True:
            letter = source.take()
            if letter == ord("-"):
                is_set = False
            elif letter == ord(")"):
                self._options = options
                return None
            elif letter == ord(":"):
                return self._inner(options)
            elif letter == ord("J") or letter == ord("X"):
                raise unsupported(f"the option {chr(letter)}", source.at - 1)
            elif letter not in _OPTIONS:
                source.at -= 1
                raise source.error(_NO_OPTION)
            elif is_set:
                options |= _OPTIONS[letter]
            else:
                options &= ~_OPTIONS[letter]

    def _inner(self, options: i64) -> nodes.Node:
        found = _choice(self._inner_branches(options, False))
        # A quantifier may follow, and concerns the group.
        return nodes.Sequence([found]) if isinstance(found, nodes.Place | nodes.Look) else found

    def _inner_branches(self, options: i64, is_behind: bool) -> list[nodes.Node]:
        """The alternatives up to the `)`, which is read, under `options`."""
        source = self._source
        outer = self._options
        self._options = options
        branches = self._branches(is_behind)
        if not source.skips(b")"):
            source.at = len(source.pattern)
            raise source.error("missing )")
        self._options = outer
        return branches


def _choice(branches: list[nodes.Node]) -> nodes.Node:
    return branches[0] if len(branches) == 1 else nodes.Choice(branches)
