"""Makes strict JSON of what RabbitMQ takes for JSON in definitions and on command lines.

RabbitMQ's parser also takes a byte order mark, comments (`//` and `/* */`), a comma before a
closing bracket, texts in single quotes, line breaks in texts, and unknown escapes, which stand for
themselves. Unlike RabbitMQ, bytes that are not UTF-8 are refused.
"""

import codecs
import json
import re
from typing import Final

import msgspec

_PIECE: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)
  | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<scalar>(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.]))
  | (?P<sign>[][{},:])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES: Final = {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_QUOTES: Final = "\"'"
# Tokens that may come next.
_VALUE: Final = "a value"
_ITEM: Final = "a value or ]"
_KEY: Final = "a name in quotes or }"
_COLON: Final = ":"
_END: Final = "the end"


class JsonError(ValueError):
    """The text is no JSON; the message begins with line and column, both from 1."""

    def __init__(self, text: str, position: int, fault: str) -> None:
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        super().__init__(f"line {line}, column {column}: {fault}")


def strict_json(data: bytes) -> bytes:
    """`data` as strict JSON: unchanged if it is. Raises JsonError."""
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _rewritten(_decoded(data)).encode()
    except RecursionError:
        raise JsonError("", 0, "too many values inside one another") from None
    return data


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        raise JsonError(before, len(before), "not UTF-8 text") from None


def _rewritten(text: str) -> str:
    """`text` as strict JSON on the same lines."""
    pieces: list[str] = []
    expected = _VALUE
    # The closing brackets to come, the innermost one last.
    closers: list[str] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            fault = "a text without its end" if text[position] in _QUOTES else "unexpected sign"
            shown = text[position : position + 20].partition("\n")[0]
            raise JsonError(text, position, f"{fault}: {shown!r}")
        piece = match[0]
        if match.lastgroup == "blank":
            pieces.append("\n" * piece.count("\n") or " ")
        elif piece in ("[", "{") and expected in (_VALUE, _ITEM):
            pieces.append(piece)
            closers.append("]" if piece == "[" else "}")
            expected = _ITEM if piece == "[" else _KEY
        elif match.lastgroup in ("text", "scalar") and expected in (_VALUE, _ITEM):
            pieces.append(_strict(piece))
            expected = _after_value(closers)
        elif match.lastgroup == "text" and expected == _KEY:
            pieces.append(_strict(piece))
            expected = _COLON
        elif piece == ":" == expected:
            pieces.append(piece)
            expected = _VALUE
        elif piece == "," and closers and expected == _after_value(closers):
            pieces.append(piece)
            expected = _ITEM if closers[-1] == "]" else _KEY
        elif closers and piece == closers[-1] and expected in (_ITEM, _KEY, _after_value(closers)):
            _drop_last_comma(pieces)
            pieces.append(closers.pop())
            expected = _after_value(closers)
        else:
            raise JsonError(text, position, f"expected {expected}, got {piece[:20]!r}")
        position = match.end()
    if expected != _END:
        raise JsonError(text, position, f"expected {expected}, got the end")
    return "".join(pieces)


def _after_value(closers: list[str]) -> str:
    return f", or {closers[-1]}" if closers else _END


def _drop_last_comma(pieces: list[str]) -> None:
    for index in range(len(pieces) - 1, -1, -1):
        if not pieces[index].isspace():
            if pieces[index] == ",":
                pieces[index] = " "
            return


def _strict(piece: str) -> str:
    """A text or another scalar as strict JSON."""
    if piece[0] not in "\"'":
        return piece
    value = _ESCAPE.sub(_unescaped, piece[1:-1])
    # Two escapes may stand for one character; half of such a pair becomes U+FFFD.
    value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return json.dumps(value, ensure_ascii=False)


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _ESCAPES.get(escape[2], escape[0])
