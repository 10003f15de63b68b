"""A check of many records by one CRC says of each record what its own CRC says."""

import random
from collections.abc import Iterator

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.skips import has_no_meaning
from warrenmq.build import build_name
from warrenmq.store.records import run_check
from warrenmq.store.records.record import (
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_VERSION,
    body_is_valid,
    crc_seed,
    record_length,
)
from warrenmq.store.records.run_check import BODY_BYTES_MAX, RUN_BYTES, RunCheck

SEED = crc_seed(b"0123456789abcdef", 7)
SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(0, 6000),
    st.sampled_from([BODY_BYTES_MAX, BODY_BYTES_MAX + 1, RUN_BYTES, RUN_BYTES + 1]),
)
# Bytes of one record, and of less than one, in front of the records that are checked.
BEFORE = (0, 1, 40)


@pytest.fixture(autouse=True, scope="module")
def runs() -> Iterator[None]:
    """Runs in the interpreted build too, which checks each record alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_check, "_IS_COMPILED", True)
        yield


def record_of(body: bytes) -> bytes:
    """A record with `body`, of any type."""
    head = RECORD_MAGIC.to_bytes(2, "big") + bytes([1, RECORD_VERSION])
    head += len(body).to_bytes(4, "big")
    header_crc = crc32c(head, SEED)
    crcs = header_crc.to_bytes(4, "big") + crc32c(body, header_crc).to_bytes(4, "big")
    return head + crcs + body


def records_of(sizes: list[int], number: int, before: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Records with bodies of `sizes` behind `before` other bytes; (offset, length) of each."""
    source = random.Random(number)
    data = bytearray(source.randbytes(before))
    places: list[tuple[int, int]] = []
    for size in sizes:
        places.append((len(data), RECORD_HEADER_BYTES + size))
        data += record_of(source.randbytes(size))
    return bytes(data), places


@given(st.lists(SIZES, max_size=40), st.integers(0, 1000), st.sampled_from(BEFORE))
def test_whole_records_are_whole(sizes: list[int], number: int, before: int) -> None:
    data, places = records_of(sizes, number, before)
    check = RunCheck(data, SEED)
    assert all(check.is_whole(start, length) for start, length in places)
    for start, length in places[::-1]:
        assert check.is_whole(start, length)


@given(
    st.lists(SIZES, min_size=1, max_size=40),
    st.integers(0, 1000),
    st.sampled_from(BEFORE),
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 255)), min_size=1, max_size=3),
    st.booleans(),
    st.randoms(use_true_random=False),
)
@settings(max_examples=300)
def test_every_damaged_byte_is_found(
    sizes: list[int],
    number: int,
    before: int,
    changes: list[tuple[int, int]],
    is_cut: bool,
    order: random.Random,
) -> None:
    data, places = records_of(sizes, number, before)
    damaged = bytearray(data)
    for at, change in changes:
        damaged[at % len(data)] ^= change
    if is_cut:
        del damaged[changes[0][0] % len(data) :]
    data = bytes(damaged)
    check = RunCheck(data, SEED)
    places += order.sample(places, len(places) // 2)
    if len(changes) == 1:
        order.shuffle(places)
    for start, length in places:
        # Without a good header there is no record to ask about.
        if record_length(data, start, SEED) == length:
            assert check.is_whole(start, length) == body_is_valid(data, start, length)


@has_no_meaning(build_name() == "compiled", "counts the calls of Python functions")
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("sizes", "alone"),
    [
        # One run, which ends with the bytes or before them.
        ([100] * 50, 0),
        # Several runs, the second of which begins in the middle of the bytes.
        ([6000] * 100, 0),
        # Two records are too few for a run.
        ([100] * 2, 2),
        # The large record is checked alone, and the records behind it make a run again.
        ([100] * 5 + [RUN_BYTES] + [100] * 5, 1),
        ([100] * 5 + [BODY_BYTES_MAX + 1] + [100] * 5, 6),
    ],
)
def test_few_records_are_checked_alone(
    before: int, sizes: list[int], alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def counted(data: bytes, start: int, length: int) -> bool:
        nonlocal count
        count += 1
        return body_is_valid(data, start, length)

    monkeypatch.setattr(run_check, "body_is_valid", counted)
    data, places = records_of(sizes, 1, before)
    check = RunCheck(data, SEED)
    assert all(check.is_whole(start, length) for start, length in places)
    assert count == alone
