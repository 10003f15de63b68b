"""Any bytes give a protocol error or a value, never another exception, a hang or much memory."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.strategies import METHOD_SPECS
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.field_table import decode_table, validate_table
from warrenmq.wire.frames import FrameBuffer
from warrenmq.wire.methods import decode_method
from warrenmq.wire.properties import decode_properties, delivery_mode


def survives(read: Callable[[], object]) -> None:
    try:
        read()
    except ConnectionException as error:
        assert 500 < error.code < 550


@given(st.sampled_from(METHOD_SPECS), st.binary(max_size=80))
def test_garbage_arguments(spec: object, arguments: bytes) -> None:
    """Noise behind a valid method id is an error or a value."""
    payload = getattr(spec, "id").to_bytes(4, "big") + arguments  # noqa: B009 - untyped
    survives(lambda: decode_method(payload, 0, len(payload)))


@given(st.binary(max_size=80))
@settings(max_examples=300)
def test_garbage_everywhere(data: bytes) -> None:
    """Noise at every entry point is an error or a value."""
    survives(lambda: decode_method(data, 0, len(data)))
    survives(lambda: decode_table(data))
    survives(lambda: validate_table(data, 0, len(data)))
    survives(lambda: decode_properties(data))
    delivery_mode(data)


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 4096))
def test_garbage_stream(chunks: list[bytes], frame_max: int) -> None:
    """Noise in chunks gives frames or an error; the buffer never holds more than was fed."""

    def read() -> None:
        buffer = FrameBuffer(frame_max)
        for chunk in chunks:
            buffer.feed(chunk)
            while buffer.next_frame() >= 0:
                assert 0 <= buffer.start <= buffer.end < len(buffer.data)

    survives(read)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x32\x00\x0a\x00\x00\x00\x00\xff\xff\xff\xff",  # queue.declare: table of 4 GiB
        b"\x00\x0a\x00\x14\xff\xff\xff\xff",  # connection.secure: challenge of 4 GiB
        b"\x00\x0a\x00\x14\x7f\xff\xff\xff",
    ],
)
def test_announced_lengths_allocate_nothing(data: bytes) -> None:
    """A length is compared with the bytes that are there before anything is allocated for it."""
    tracemalloc.start()
    try:
        survives(lambda: decode_method(data, 0, len(data)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
