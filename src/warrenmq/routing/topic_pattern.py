"""Topic patterns: the words and wildcards of a binding key in normal form (protocol 6).

A pattern is words separated by dots. `*` stands for exactly one word of the key, `#` for any
number, none included; both only as whole words. The empty pattern has no words, `a..b` has three.

Neighbouring wildcards match the same in any order, and several `#` match the same as one. The
normal form has the `*` first and one `#` behind them: `#.*.#` becomes `*.#`. In normal form equal
patterns share their nodes, and a `#` is followed by a literal word or by nothing.
"""

from typing import Final

ONE_WORD: Final = b"*"
ANY_WORDS: Final = b"#"
_LITERAL: Final = b"w"


def pattern_words(key: bytes) -> list[bytes]:
    """The words of a binding key in normal form."""
    words: list[bytes] = []
    if not key:
        return words
    has_any_words = False
    for word in key.split(b"."):
        if word == ANY_WORDS:
            has_any_words = True
            continue
        if has_any_words and word != ONE_WORD:
            words.append(ANY_WORDS)
            has_any_words = False
        words.append(word)
    if has_any_words:
        words.append(ANY_WORDS)
    return words


def pattern_shape(words: list[bytes]) -> bytes:
    """The pattern with every literal word replaced by `w`, without dots: `*ww#` for `*.a.b.#`."""
    return b"".join([word if word in (ONE_WORD, ANY_WORDS) else _LITERAL for word in words])


def inner_any_words(shape: bytes) -> int:
    """The number of `#` in a pattern of this shape, not counting one at its end."""
    return shape.count(ANY_WORDS) - (1 if shape.endswith(ANY_WORDS) else 0)


def literal_prefix(shape: bytes) -> int:
    """The number of literal words before the first wildcard."""
    return len(shape) - len(shape.lstrip(_LITERAL))
