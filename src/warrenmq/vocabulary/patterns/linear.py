"""Patterns in RE2, whose time is linear in the name whatever the pattern is.

RE2 has no looks, references, possessive repeats or atomic groups, and counts to 1,000 at most. It
has no place before a newline that ends the text (`$`) either; behind everything else in a pattern,
an optional newline and the end do the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from warrenmq.vocabulary.patterns import nodes
from warrenmq.vocabulary.patterns.octets import ranges

if TYPE_CHECKING:
    pass

# Bytes for the automaton of one pattern. A larger one does not compile. A search whose states do
# not fit simulates the automaton instead: up to 3 ms for a name of 255 octets.
MEMORY_MAX: Final = 65536

_PLACES: Final[dict[int, str]] = {
    nodes.START: r"\A", nodes.END: r"\z", nodes.LAST: r"\n?\z", nodes.LINE_END: "(?m:$)", nodes.ANYWHERE: ""
}  # fmt: skip


def compile_linear(pattern: str | bytes, is_text: bool) -> Any:
    """The matcher of RE2 for `pattern` in RE2's syntax, on characters or on octets.

    Raises ValueError with RE2's text if the pattern is invalid or too large.
    """
    # Imported at the first use: most nodes never see a pattern, and a start should not wait for the
    # library.
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_MAX
    options.never_capture = True
    # Errors go to whoever sent the pattern, not to stderr.
    options.log_errors = False
    if not is_text:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from None


def linear_text(node: nodes.Node) -> str:
    """The tree in RE2's syntax; ValueError if RE2 cannot express it."""
    return _text(node, True)


def _text(node: nodes.Node, is_last: bool) -> str:
    """`is_last`: nothing follows that could take an octet or look at the place."""
    if isinstance(node, nodes.Octet):
        return _octet_text(node.members)
    if isinstance(node, nodes.Sequence):
        return "".join(
            [
                _text(part, is_last and _are_last(node.parts[i + 1 :]))
                for i, part in enumerate(node.parts)
            ]
        )
    if isinstance(node, nodes.Choice):
        return "(?:" + "|".join([_text(branch, is_last) for branch in node.branches]) + ")"
    if isinstance(node, nodes.Group):
        return _text(node.part, is_last)
    if isinstance(node, nodes.Repeat) and node.mode != nodes.POSSESSIVE:
        inner = _text(node.part, is_last and node.high <= 1)
        high = "" if node.high == nodes.UNBOUNDED else str(node.high)
        return f"(?:{inner}){{{node.low},{high}}}"
    if isinstance(node, nodes.Place):
        text = _PLACES.get(node.kind)
        if text is not None and (node.kind != nodes.LAST or is_last):
            return text
    raise ValueError("RE2 cannot express the pattern")


def _are_last(parts: list[nodes.Node]) -> bool:
    for part in parts:
        if not isinstance(part, nodes.Place) or part.kind not in (nodes.LAST, nodes.ANYWHERE):
            return False
    return True


@lru_cache(1024)
def _octet_text(members: int) -> str:
    found = [
        f"\\x{first:02x}" if first == last else f"\\x{first:02x}-\\x{last:02x}"
        for first, last in ranges(members)
    ]
    if len(found) == 1 and "-" not in found[0]:
        return found[0]
    return "[" + "".join(found) + "]" if found else r"[^\x00-\xff]"
