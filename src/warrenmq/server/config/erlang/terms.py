"""Reads Erlang terms from text: RabbitMQ's classic configuration, and values of `erl` arguments.

A list is a list, a map a dict, a string `"a"` a `String`, a binary `<<"a">>` a `Binary`, and a
tuple a `Tuple` that knows its line. An atom is an `Atom`, but `true` and `false` are bools.
"""

import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+|%[^\n]*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<quoted>'(?:[^'\\]|\\.)*')
  | (?P<float>-?\d+\.\d+(?:[eE][+-]?\d+)?)
  | (?P<integer>-?\d[\d_]*)
  | (?P<char>\$(?:\\.|.))
  | (?P<atom>[a-z][A-Za-z0-9_@]*)
  | (?P<sign><<|>>|=>|\#\{|[][{}(),|./])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "s": " ", "e": "\x1b", "b": "\b", "f": "\f"}
_DEPTH_MAX: Final = 100
_CLOSERS: Final = {"[": "]", "{": "}", "#{": "}"}


class ErlangSyntaxError(ValueError):
    """The text is no Erlang term; `line` says where."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class Atom(str):
    """An atom."""

    __slots__ = ()


class String(str):
    """A string, which in Erlang is a list of characters."""

    __slots__ = ()


class Binary(str):
    """A binary that is text."""

    __slots__ = ()


class Tuple(tuple[Any, ...]):
    """A tuple; `line` is that of its first sign."""

    line: int


def parse_term(text: str) -> Any:
    """The term in `text`, with or without the dot at its end. Raises ErlangSyntaxError."""
    parser = _Parser(text)
    term = parser.term(0)
    if parser.peek() == ".":
        parser.take()
    if parser.peek():
        raise parser.error(f"unexpected {parser.peek()!r} after the term")
    return term


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._kind = ""
        self._next = ""
        self._start = 0
        self._advance()

    def peek(self) -> str:
        """The token that comes next; "" at the end."""
        return self._next

    def take(self) -> str:
        """The next token, which is passed."""
        passed = self._next
        self._advance()
        return passed

    def error(self, text: str) -> ErlangSyntaxError:
        """The error at the next token."""
        return ErlangSyntaxError(self._line(), text)

    def term(self, depth: int) -> Any:
        """The term that begins here."""
        if depth > _DEPTH_MAX:
            raise self.error("too many terms inside one another")
        text, kind = self._next, self._kind
        if text in _CLOSERS:
            return self._group(depth)
        if text == "<<":
            return self._binary()
        if kind == "string":
            return self._string()
        if kind in ("quoted", "atom", "float", "integer", "char"):
            return _scalar(kind, self.take())
        raise self.error(
            f"expected an Erlang term, got {text!r}" if text else "the term has no end"
        )

    def _group(self, depth: int) -> Any:
        line = self._line()
        opener = self.take()
        closer = _CLOSERS[opener]
        items: list[Any] = []
        while self._next != closer:
            item = self.term(depth + 1)
            if opener == "#{":
                self._expect("=>")
                item = (item, self.term(depth + 1))
            items.append(item)
            if self._next != closer:
                self._expect(",")
                if self._next == closer:
                    raise self.error("a comma before the end of a list or tuple")
        self.take()
        if opener == "{":
            group = Tuple(items)
            group.line = line
            return group
        return dict(items) if opener == "#{" else items

    def _binary(self) -> Binary:
        self.take()
        text = self._string() if self._kind == "string" else ""
        if self._next == "/":
            self.take()
            self.take()
        self._expect(">>")
        return Binary(text)

    def _string(self) -> String:
        text = ""
        # Strings beside one another are one string.
        while self._kind == "string":
            text += _unescaped(self.take()[1:-1])
        return String(text)

    def _expect(self, sign: str) -> None:
        if self._next != sign:
            found = "the end"
            if self._next:
                # A text may be a password, and the log has this line.
                found = repr(self._next) if self._kind == "sign" else f"one more {self._kind}"
            raise self.error(f"expected {sign!r}, got {found}")
        self.take()

    def _advance(self) -> None:
        while True:
            self._start = self._position
            if self._position == len(self._text):
                self._kind = self._next = ""
                return
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                raise self.error(f"unexpected {self._text[self._position]!r}")
            self._position = match.end()
            if match.lastgroup != "blank":
                self._kind, self._next = match.lastgroup or "", match[0]
                return

    def _line(self) -> int:
        return self._text.count("\n", 0, self._start) + 1


def _scalar(kind: str, token: str) -> Any:
    if kind == "quoted":
        return Atom(_unescaped(token[1:-1]))
    if kind == "atom":
        return {"true": True, "false": False}.get(token, Atom(token))
    if kind == "float":
        return float(token)
    if kind == "char":
        return ord(_unescaped(token[1:]))
    return int(token.replace("_", ""))


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), text, flags=re.DOTALL
    )
