"""Erlang terms as text, with the line breaks that Erlang's `~p` makes.

A value is a term: a text is a binary, a bool an atom, a tuple a tuple, a list a list and a dict a
map. `Atom` and `Bare` are those that Python has no type for.

A term that fits its line is written on it. Otherwise each element of a list, a tuple or a map gets
a line of its own, but elements without parts may share one. Elements of a tuple are indented to
the end of its first one, an atom, unless that is too far to the right.
"""

import re
from typing import Any, Final

from msgspec import Struct

_LINE: Final = 80
# Indentation of a value below its tag or its key, when it cannot stand beside it.
_INDENT: Final = 4
_PLAIN_ATOM: Final = re.compile(r"[a-z][A-Za-z0-9_@]*$")
_RESERVED: Final = (
    "after", "and", "andalso", "band", "begin", "bnot", "bor", "bsl", "bsr", "bxor", "case",
    "catch", "cond", "div", "end", "fun", "if", "let", "not", "of", "or", "orelse", "receive",
    "rem", "try", "when", "xor",
)  # fmt: skip
_ESCAPES: Final = {
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\b": "\\b", "\f": "\\f", "\x1b": "\\e",
    "\\": "\\\\",
}  # fmt: skip


class Atom(Struct, frozen=True):
    """An atom; quotes are added where it needs them."""

    name: str


class Bare(Struct, frozen=True):
    """A term whose text is known: a pid."""

    text: str


class _Node:
    """A part of a term: its text on one line, and its own parts if it can be divided.

    `kind`: "" (cannot be divided), "list", "tuple" (with an atom first), "map", "pair", "binary".
    """

    def __init__(self, text: str, kind: str = "", parts: "list[_Node] | None" = None) -> None:
        self.text = text
        self.kind = kind
        self.parts = parts or []
        self.length = len(text)

    @property
    def is_whole(self) -> bool:
        """Whether it may share a line with other elements."""
        if self.kind == "pair":
            return not any(part.kind for part in self.parts)
        return not self.kind


class _TooWide(Exception):
    """With this indentation a part would begin in the right half of the line."""


def term_lines(value: Any) -> str:
    """`value` as Erlang's `io_lib:format("~p", [value])` shows it."""
    node = _node(value)
    if node.length < _LINE - 1:
        return node.text
    for indent in (-1, _INDENT):
        try:
            return _Layout(indent, node.length).write(node, 1, 0, 0)
        except _TooWide:
            pass
    return _Layout(1, node.length, is_bounded=False).write(node, 1, 0, 0)


# -- one line --------------------------------------------------------------------------------------


def _node(value: Any) -> _Node:
    if isinstance(value, str):
        return _binary(value)
    if isinstance(value, list):
        return _group("[", [_node(each) for each in value], "]", "list")
    if isinstance(value, tuple):
        parts = [_node(each) for each in value]
        is_tagged = len(value) > 1 and isinstance(value[0], Atom | bool)
        return _group("{", parts, "}", "tuple" if is_tagged else "list")
    if isinstance(value, dict):
        pairs = [_pair(_node(key), _node(each)) for key, each in value.items()]
        return _group("#{", pairs, "}", "map")
    return _Node(_simple(value))


def _group(start: str, parts: list[_Node], end: str, kind: str) -> _Node:
    text = start + ",".join([part.text for part in parts]) + end
    return _Node(text, kind if parts else "", parts)


def _pair(key: _Node, value: _Node) -> _Node:
    return _Node(f"{key.text} => {value.text}", "pair", [key, value])


def _binary(text: str) -> _Node:
    if all(" " <= each <= "~" or each in _ESCAPES for each in text):
        return _Node(f"<<{_quoted(text, chr(34))}>>" if text else "<<>>")
    numbers = [_Node(str(byte)) for byte in text.encode()]
    return _group("<<", numbers, ">>", "binary")


def _simple(value: Any) -> str:
    if isinstance(value, Atom):
        return _atom(value.name)
    if isinstance(value, Bare):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    return "undefined" if value is None else str(value)


def _atom(name: str) -> str:
    if _PLAIN_ATOM.match(name) and name not in _RESERVED:
        return name
    return _quoted(name, "'")


def _quoted(text: str, quote: str) -> str:
    inner = "".join([_ESCAPES.get(each, each) for each in text]).replace(quote, f"\\{quote}")
    return f"{quote}{inner}{quote}"


# -- several lines ---------------------------------------------------------------------------------


class _Layout:
    """Divides a term of `width_max` characters; `indent` < 0: beside tags, however long they are.

    In all methods `column` is the place (from 1 on) at which the text begins, `closing` the number
    of brackets that have to follow it, and `used` the characters before it on its line.
    """

    def __init__(self, indent: int, width_max: int, *, is_bounded: bool = True) -> None:
        self._indent = indent
        self._width_max = width_max
        self._is_bounded = is_bounded

    def write(self, node: _Node, column: int, closing: int, used: int) -> str:
        """The text of `node`. Raises _TooWide."""
        if not node.kind or self._fits(node.length, column, closing, used):
            return node.text
        if node.kind == "binary":
            return self._bytes(node, column + 2, closing, used)
        if node.kind == "tuple":
            return self._tagged(node, column, closing, used + 1)
        start = "#{" if node.kind == "map" else node.text[0]
        width = len(start)
        return start + self._elements(node.parts, column + width, closing, used + 1) + node.text[-1]

    def _fits(self, length: int, column: int, closing: int, used: int) -> bool:
        return length < _LINE - column - closing and length + used + closing <= self._width_max

    def _tagged(self, node: _Node, column: int, closing: int, used: int) -> str:
        tag, rest = node.parts[0], node.parts[1:]
        beside = column + tag.length + 2
        if 0 < self._indent < tag.length + 2:
            below = column + self._indent
            self._check(below)
            text = self._tail(rest, below, beside, closing, used + tag.length)
            return f"{{{tag.text}{text}}}"
        self._check(beside)
        return f"{{{tag.text},{self._elements(rest, beside, closing, used + tag.length + 1)}}}"

    def _check(self, column: int) -> None:
        if self._is_bounded and self._width_max + column > _LINE and column > _LINE // 2:
            raise _TooWide

    def _elements(self, parts: list[_Node], column: int, closing: int, used: int) -> str:
        last = closing + 1 if len(parts) == 1 else 0
        text, width = self._element(parts[0], column, last, used)
        return text + self._tail(parts[1:], column, column + width, closing, used + width)

    def _tail(self, parts: list[_Node], column: int, reached: int, closing: int, used: int) -> str:
        """The elements after the first one, which ends at `reached`; each with its comma."""
        text = ""
        for index, part in enumerate(parts):
            last = closing + 1 if index == len(parts) - 1 else 0
            width = part.length + 1
            if part.is_whole and self._fits(width, reached, max(last, 1), used):
                text += f",{part.text}"
                reached += width
                used += width
                continue
            element, width = self._element(part, column, last, 0)
            text += f",\n{' ' * (column - 1)}{element}"
            reached = column + width
            used = width
        return text

    def _element(self, part: _Node, column: int, closing: int, used: int) -> tuple[str, int]:
        """Text and width of an element; after one with parts a line must end."""
        fits = self._fits(part.length, column, closing, used)
        if fits:
            return part.text, part.length if part.is_whole else _LINE
        if part.kind != "pair":
            return self.write(part, column, closing, used), _LINE
        below = column + (self._indent if self._indent > 0 else _INDENT)
        key, value = part.parts
        shown = self.write(key, column, closing, used)
        return f"{shown} =>\n{' ' * (below - 1)}{self.write(value, below, closing, 0)}", _LINE

    def _bytes(self, node: _Node, column: int, closing: int, used: int) -> str:
        room = max(8, min(_LINE - column, self._width_max - 4 - used) - closing)
        text, left = "<<", room
        for index, part in enumerate(node.parts):
            is_last = index == len(node.parts) - 1
            shown = part.text if is_last else f"{part.text},"
            if len(shown) > left:
                text += f"\n{' ' * (column - 1)}"
                left = room
            text += shown
            left -= len(shown)
        return f"{text}>>"
