"""JSON values as RabbitMQ's error texts show them: as Erlang terms.

RabbitMQ breaks lines at 80 columns in such a text; `error_text` and `settings_text` do the same.
"""

from decimal import Decimal
from typing import Final

from warrenmq.vocabulary.patterns.errors import PatternError

# The most columns of a term that stays on one line.
_COLUMNS: Final = 78
_ESCAPES: Final = {
    8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e", 34: '\\"', 92: "\\\\"
}  # fmt: skip


def term_text(value: object) -> str:
    """The JSON value as an Erlang term: `<<"x">>`, `true`, `#{<<"a">> => 1}`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _binary_text(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, dict):
        return (
            "#{"
            + ",".join([f"{term_text(k)} => {term_text(value[k])}" for k in sorted(value)])
            + "}"
        )
    if isinstance(value, list):
        octets = _octets(value)
        if len(octets) > 0 and _is_printable(octets):
            return _quoted(octets)
        return "[" + ",".join([term_text(item) for item in value]) + "]"
    return str(value)


def settings_text(settings: dict[str, object]) -> str:
    """Settings as a list of pairs in order of their keys."""
    pairs = [f"{{{term_text(key)},{term_text(settings[key])}}}" for key in sorted(settings)]
    line = "[" + ",".join(pairs) + "]"
    return line if len(line) <= _COLUMNS else "[" + ",\n ".join(pairs) + "]"


def error_text(before: str, error: PatternError) -> str:
    """The text `before`, followed by what is wrong with a regular expression."""
    reason = _quoted(error.reason.encode())
    line = f"{before}{{{reason},{error.place}}}"
    if len(line) <= _COLUMNS:
        return line
    return f"{before}{{{reason},\n{' ' * (len(before) + 1)}{error.place}}}"


def _float_text(value: float) -> str:
    """The shorter of the plain and the scientific form; the plain one if both are equally long."""
    number = Decimal(repr(value))
    digits = "".join([str(digit) for digit in number.normalize().as_tuple().digits])
    sign = "-" if value < 0 else ""
    scientific = f"{sign}{digits[0]}.{digits[1:] or '0'}e{number.adjusted()}"
    plain = format(number, "f")
    if "." not in plain:
        plain += ".0"
    return plain if len(plain) <= len(scientific) else scientific


def _octets(items: list[object]) -> bytes:
    """The items if all are octets, else nothing: Erlang takes a list of octets for a text."""
    octets = bytearray()
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= 255:
            return b""
        octets.append(item)
    return bytes(octets)


def _binary_text(octets: bytes) -> str:
    if len(octets) == 0:
        return "<<>>"
    if _is_printable(octets):
        return f"<<{_quoted(octets)}>>"
    return "<<" + ",".join([str(octet) for octet in octets]) + ">>"


def _is_printable(octets: bytes) -> bool:
    # Latin 1 without its control characters.
    for octet in octets:
        if octet not in _ESCAPES and not 32 <= octet <= 126 and octet < 160:
            return False
    return True


def _quoted(octets: bytes) -> str:
    return '"' + "".join([_ESCAPES.get(octet, chr(octet)) for octet in octets]) + '"'
