"""A body joined from pieces is exact, and never takes twice its size in memory."""

import random
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.broker.content.body import BLOCK_BYTES, SMALL_PIECE_BYTES, Body

MIB = 1 << 20
FRAME = 131_064


def put_together(pieces: list[bytes]) -> bytes:
    body = Body(sum(len(piece) for piece in pieces))
    received = 0
    for piece in pieces[:-1]:
        body.add(piece)
        received += len(piece)
        assert body.received_bytes == received
    return body.finish(pieces[-1])


@given(
    st.lists(st.integers(0, 3 * SMALL_PIECE_BYTES), min_size=1, max_size=40),
    st.integers(0, 1 << 30),
)
def test_a_body_is_its_pieces(sizes: list[int], seed: int) -> None:
    rng = random.Random(seed)
    pieces = [rng.randbytes(size) for size in sizes]
    assert put_together(pieces) == b"".join(pieces)


def test_a_body_of_many_blocks_is_its_pieces() -> None:
    rng = random.Random(1)
    pieces = []
    size = 0
    while size < 5 * BLOCK_BYTES:
        # Runs of small pieces alternate with large pieces, which sometimes end a block.
        pieces += [rng.randbytes(rng.choice((1, 1000, SMALL_PIECE_BYTES)))] * rng.randrange(40)
        pieces.append(rng.randbytes(rng.choice((FRAME, FRAME, BLOCK_BYTES // 2))))
        size += len(pieces[-1])
    assert put_together(pieces) == b"".join(pieces)


def test_a_large_body_is_not_in_memory_twice() -> None:
    count = 48 * MIB // FRAME
    body = Body(count * FRAME)
    tracemalloc.start()
    try:
        for _ in range(count - 1):
            body.add(bytes(FRAME))
        whole = body.finish(bytes(FRAME))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(whole) == count * FRAME
    assert peak < 1.5 * len(whole)


def test_nothing_is_taken_for_what_is_announced() -> None:
    tracemalloc.start()
    try:
        body = Body(1 << 29)
        body.add(bytes(10))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
