"""Tests Erlang's term format: known bytes, round trips of all terms, and hostile bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rabbitmq.files import encode_term
from warrenmq.tables.rabbitmq.external_term import Atom, TermError, decode_term

_KEYS = st.integers() | st.binary(max_size=10) | st.text(max_size=10).map(Atom)
TERMS = st.recursive(
    st.integers()
    | st.integers(-(1 << 3000), 1 << 3000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=300)
    | st.text(max_size=100).map(Atom),
    lambda terms: (
        st.lists(terms, max_size=6)
        | st.lists(terms, max_size=6).map(tuple)
        | st.dictionaries(_KEYS, terms, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("hexadecimal", "term"),
    [
        ("83 61 ff", 255),
        ("83 62 ff ff ff fe", -2),
        ("83 6e 08 01 00 00 00 00 00 00 00 10", -(1 << 60)),
        ("83 6f 00 00 00 01 00 07", 7),
        ("83 46 3f f8 00 00 00 00 00 00", 1.5),
        ("83 64 00 04 6e 6f 6e 65", Atom("none")),
        ("83 73 01 e9", Atom("é")),
        ("83 77 02 c3 a9", Atom("é")),
        ("83 76 00 02 c3 a9", Atom("é")),
        ("83 6d 00 00 00 02 61 62", b"ab"),
        ("83 6a", []),
        ("83 6b 00 02 01 02", [1, 2]),
        ("83 6c 00 00 00 02 61 01 6a 6a", [1, []]),
        ("83 68 02 61 01 6d 00 00 00 00", (1, b"")),
        ("83 69 00 00 00 01 61 01", (1,)),
        ("83 74 00 00 00 01 77 01 78 61 05", {"x": 5}),
    ],
)
def test_known_bytes(hexadecimal: str, term: object) -> None:
    found = decode_term(bytes.fromhex(hexadecimal))
    assert found == term
    assert type(found) is type(term)


@given(TERMS)
def test_what_was_written_comes_back(term: object) -> None:
    assert decode_term(encode_term(term)) == term


@given(TERMS, st.data())
def test_a_cut_or_changed_term_is_an_error_or_another_term(
    term: object, data: st.DataObject
) -> None:
    raw = bytearray(encode_term(term))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(TermError):
        decode_term(bytes(raw[:cut]))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TermError):
        decode_term(bytes(raw))


@pytest.mark.parametrize(
    "hexadecimal",
    [
        "",
        "83",
        "82 61 01",
        "83 61 01 00",
        # Lengths and counts of about 4 GiB.
        "83 6d ff ff ff ff",
        "83 6c ff ff ff ff 61 01",
        "83 69 ff ff ff ff 61 01",
        "83 74 ff ff ff ff 61 01",
        "83 6f ff ff ff ff 00 01",
        # A list with a tail, a map whose key is a list, text that is not UTF-8, compressed, a
        # process.
        "83 6c 00 00 00 01 61 01 61 02",
        "83 74 00 00 00 01 6c 00 00 00 01 61 01 6a 61 01",
        "83 77 01 ff",
        "83 50 00 00 00 01 78",
        "83 67",
    ],
)
def test_what_is_no_term(hexadecimal: str) -> None:
    with pytest.raises(TermError):
        decode_term(bytes.fromhex(hexadecimal))


def test_depth_has_a_limit() -> None:
    with pytest.raises(TermError, match="nested"):
        decode_term(b"\x83" + b"h\x01" * 100_000 + b"j")
