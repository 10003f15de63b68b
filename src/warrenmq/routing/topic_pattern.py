"""Topic patterns: the words of a binding key in a normal form, and where its wildcards stand (protocol.md 6).

A pattern is words separated by dots; `*` stands for exactly one word of the key, `#` for any number, none included; only
as whole words. The empty pattern has no words, `a..b` has three.

Neighbouring wildcards match the same in any order, and several `#` the same as one. The normal form has the `*` first and
one `#` behind them: `#.*.#` becomes `*.#`. Equal patterns share their nodes then, and behind a `#` comes a literal word or
nothing.
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
    """How many `#` a pattern of this shape has that do not end it."""
    return shape.count(ANY_WORDS) - (1 if shape.endswith(ANY_WORDS) else 0)


def literal_prefix(shape: bytes) -> int:
    """The number of literal words before the first wildcard."""
    return len(shape) - len(shape.lstrip(_LITERAL))
