"""Frames of node links: any chunking gives the same frames, lanes keep their promises."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.cluster.links.frames import (
    BAD_FRAME,
    CHUNK,
    CHUNK_BYTES,
    CHUNK_START,
    FIRST_KIND,
    NEED_DATA,
    PAYLOAD_BYTES_MAX,
    FrameQueue,
    FrameReader,
)

Frame = tuple[int, bytes]


def header(kind: int, size: int) -> bytes:
    """A header that is put together without the codec."""
    return size.to_bytes(4, "big") + bytes([kind])


def frame(kind: int, payload: bytes) -> bytes:
    return header(kind, len(payload)) + payload


def start(kind: int, size: int) -> bytes:
    """The start of a chunked payload."""
    return frame(CHUNK_START, bytes([kind]) + size.to_bytes(4, "big"))


def drain(reader: FrameReader) -> list[Frame]:
    frames = []
    while (kind := reader.next_frame()) >= 0:
        frames.append((kind, reader.payload))
    return frames


def read(chunks: list[bytes], payload_max: int = PAYLOAD_BYTES_MAX) -> list[Frame]:
    reader = FrameReader(payload_max)
    frames: list[Frame] = []
    for chunk in chunks:
        reader.feed(chunk)
        frames += drain(reader)
    assert reader.fault == ""
    return frames


def taken(queue: FrameQueue) -> bytes:
    return b"".join(queue.take())


def fault_of(stream: bytes, payload_max: int = PAYLOAD_BYTES_MAX) -> str:
    reader = FrameReader(payload_max)
    reader.feed(stream)
    drain(reader)
    assert reader.next_frame() == BAD_FRAME
    reader.feed(frame(FIRST_KIND, b"more"))
    assert reader.next_frame() == BAD_FRAME
    return reader.fault


# Payloads around the sizes at which something changes.
sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([4095, 4096, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]),
)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(FIRST_KIND, 255), sizes), max_size=8),
    st.lists(st.integers(0, 1_000_000), max_size=20),
)
def test_frames_survive_any_cut(sent: list[tuple[bool, int, int]], cuts: list[int]) -> None:
    """However the stream is cut, all frames come out, in the order of each lane."""
    queue = FrameQueue()
    lanes: tuple[list[Frame], list[Frame]] = ([], [])
    for number, (is_first, kind, size) in enumerate(sent):
        payload = bytes([number]) * min(size, CHUNK_BYTES if is_first else size)
        lanes[not is_first].append((kind, payload))
        (queue.add_first if is_first else queue.add_data)(kind, payload)
    stream = b""
    while part := taken(queue):
        stream += part
    assert queue.size_bytes == 0
    edges = sorted({0, len(stream), *[cut % (len(stream) + 1) for cut in cuts]})
    assert read([stream[a:b] for a, b in pairwise(edges)]) == lanes[0] + lanes[1]


def test_frames_survive_a_cut_at_every_boundary() -> None:
    """The stream is read byte by byte, and cut once at each offset."""
    frames = [(16, b"payload"), (6, b""), (255, bytes(9)), (17, b"chunked")]
    stream = b"".join(frame(*each) for each in frames[:3])
    stream += start(17, 7) + frame(CHUNK, b"ch") + frame(CHUNK, b"unked")
    assert read([stream[i : i + 1] for i in range(len(stream))]) == frames
    for cut in range(len(stream) + 1):
        assert read([stream[:cut], b"", stream[cut:]]) == frames


def test_bytes_of_frames() -> None:
    """The encoding is fixed byte by byte."""
    queue = FrameQueue()
    queue.add_data(255, b"data")
    queue.add_first(16, b"control")
    assert taken(queue) == b"\0\0\0\7\x10control" + b"\0\0\0\4\xffdata"
    queue.add_data(17, b"x" * (CHUNK_BYTES + 1))
    assert taken(queue) == start(17, CHUNK_BYTES + 1) + frame(CHUNK, b"x" * CHUNK_BYTES)
    assert taken(queue) == frame(CHUNK, b"x")


def test_a_large_payload_makes_no_other_frame_wait_for_more_than_a_chunk() -> None:
    queue = FrameQueue()
    queue.add_data(16, bytes(10 * CHUNK_BYTES))
    queue.add_data(17, b"later")
    reader = FrameReader(PAYLOAD_BYTES_MAX)
    order: list[int] = []
    for number in range(11):
        urgent = frame(20, bytes([number]))
        queue.add_first(20, bytes([number]))
        part = taken(queue)
        assert part.startswith(urgent)
        assert len(part) <= len(urgent) + len(start(16, 0)) + CHUNK_BYTES + 3 * len(header(0, 0))
        reader.feed(part)
        order += [kind for kind, _ in drain(reader)]
    assert order == [20] * 10 + [16, 20, 17]


def test_small_data_frames_leave_together_but_not_more_than_a_chunk() -> None:
    queue = FrameQueue()
    for _ in range(50):
        queue.add_data(16, bytes(CHUNK_BYTES // 20))
    assert [len(read([taken(queue)])) for _ in range(4)] == [20, 20, 10, 0]


def test_size_is_what_waits() -> None:
    queue = FrameQueue()
    queue.add_data(16, bytes(2 * CHUNK_BYTES))
    queue.add_first(16, b"four")
    assert queue.size_bytes == 2 * CHUNK_BYTES + 5 + 9
    queue.take()
    assert queue.size_bytes == CHUNK_BYTES + 5
    queue.clear()
    assert (queue.size_bytes, queue.take()) == (0, [])
    queue.add_data(17, bytes(CHUNK_BYTES + 1))
    assert taken(queue).startswith(start(17, CHUNK_BYTES + 1))


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (header(16, CHUNK_BYTES + 1), "a frame of kind 16 has 131073 bytes"),
        (header(255, 0xFFFFFFFF), "a frame of kind 255 has 4294967295 bytes"),
        (frame(CHUNK, b"x"), "a chunk belongs to no payload"),
        (start(16, 3) + header(CHUNK, 0), "a chunk has 0 bytes, and its payload lacks 3"),
        (start(16, 3) + header(CHUNK, 4), "a chunk has 4 bytes, and its payload lacks 3"),
        (
            start(16, 3) + frame(CHUNK, b"x") + header(CHUNK, 3),
            "a chunk has 3 bytes, and its payload lacks 2",
        ),
        (start(16, 3) + start(16, 3), "a chunked payload begins before the last one has ended"),
        (frame(CHUNK_START, b"x"), "the start of a chunked payload has 1 bytes"),
        (start(15, 3), "a chunked payload of kind 15 has 3 bytes"),
        (start(16, 0), "a chunked payload of kind 16 has 0 bytes"),
        (start(16, PAYLOAD_BYTES_MAX + 1), "a chunked payload of kind 16 has 1073741825 bytes"),
        (start(16, 0xFFFFFFFF), "a chunked payload of kind 16 has 4294967295 bytes"),
    ],
)
def test_a_fault_is_found_on_the_header_and_ends_the_stream(stream: bytes, fault: str) -> None:
    assert fault_of(stream) == fault


def test_payload_max_holds_for_frames_and_chunked_payloads() -> None:
    assert read([frame(16, bytes(40))], 40) == [(16, bytes(40))]
    assert fault_of(header(16, 41), 40) == "a frame of kind 16 has 41 bytes"
    assert fault_of(start(16, 41), 40) == "a chunked payload of kind 16 has 41 bytes"


def test_frames_fed_before_the_last_ones_were_read_are_kept() -> None:
    reader = FrameReader(100)
    reader.feed(frame(16, b"a") + frame(17, b"b"))
    assert reader.next_frame() == 16
    reader.feed(frame(18, b"c") + b"\0")
    assert drain(reader) == [(17, b"b"), (18, b"c")]
    assert reader.next_frame() == NEED_DATA
