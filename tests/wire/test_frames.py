"""Frames in and out: any chunking gives the same frames, faults give the reply RabbitMQ gives."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from tests.wire.strategies import build, methods_with_values
from tools.generate_wire import MethodSpec
from warrenmq.wire.encode import (
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    write_content,
    write_heartbeat,
    write_method_frame,
)
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, NEED_DATA, FrameBuffer
from warrenmq.wire.methods import BasicPublish, QueueDeclare

Frame = tuple[int, int, bytes]


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame that is put together without the codec."""
    return (
        bytes([kind])
        + channel.to_bytes(2, "big")
        + len(payload).to_bytes(4, "big")
        + payload
        + b"\xce"
    )


def drain(buffer: FrameBuffer) -> list[Frame]:
    frames: list[Frame] = []
    while (kind := buffer.next_frame()) != NEED_DATA:
        frames.append((kind, buffer.channel, buffer.data[buffer.start : buffer.end]))
    return frames


def read(chunks: list[bytes], frame_max: int = 131072) -> list[Frame]:
    buffer = FrameBuffer(frame_max)
    frames: list[Frame] = []
    for chunk in chunks:
        buffer.feed(chunk)
        frames += drain(buffer)
    return frames


def written(write: Callable[[BytesWriter], None]) -> bytes:
    out = BytesWriter()
    write(out)
    return out.getvalue()


def refused(data: bytes, frame_max: int = 4096) -> str:
    with pytest.raises(ConnectionException) as caught:
        read([data], frame_max)
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (501, 0, 0)
    return caught.value.text


raw_frames = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 65535), st.binary(max_size=40)),
    max_size=8,
)


@given(raw_frames, st.lists(st.integers(0, 400), max_size=20))
def test_frames_survive_any_chunking(frames: list[Frame], cuts: list[int]) -> None:
    """However the stream is cut, the same frames come out in the same order."""
    stream = b"".join(frame(*each) for each in frames)
    edges = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    assert read(chunks) == frames


def test_frames_survive_a_cut_at_every_boundary() -> None:
    """The stream is read whole, byte by byte, and cut once at each offset."""
    frames: list[Frame] = [
        (1, 1, b"method"),
        (2, 65535, bytes(12)),
        (3, 1, b""),
        (8, 0, b""),
        (3, 7, b"\xce" * 9),
    ]
    stream = b"".join(frame(*each) for each in frames)
    assert read([stream]) == frames
    assert read([stream[i : i + 1] for i in range(len(stream))]) == frames
    for cut in range(len(stream) + 1):
        assert read([stream[:cut], b"", stream[cut:]]) == frames


def test_bytes_fed_before_the_last_ones_were_read_are_kept() -> None:
    """A caller may stop in the middle of a chunk (back-pressure) and continue to feed."""
    buffer = FrameBuffer(0)
    buffer.feed(frame(8, 0, b"a") + frame(8, 0, b"b"))
    assert buffer.next_frame() == 8
    buffer.feed(frame(8, 0, b"c") + b"\x08")
    assert [each[2] for each in drain(buffer)] == [b"b", b"c"]
    buffer.feed(frame(8, 0, b"d")[1:])
    assert [each[2] for each in drain(buffer)] == [b"d"]


def test_frame_over_frame_max_is_refused_on_its_header() -> None:
    """Only the payload is measured, and the check does not wait for it."""
    assert len(read([frame(3, 1, bytes(4096))], 4096)) == 1
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}"
    assert refused(frame(3, 1, bytes(4097))[:7]) == text
    assert "{frame_too_large,4294967295,4088}" in refused(b"\x01\x00\x01\xff\xff\xff\xff")


def test_frame_max_0_is_no_limit() -> None:
    """frame_max 0 means no limit."""
    assert len(read([frame(3, 1, bytes(200_000))], 0)) == 1


def test_wrong_end_octet_is_refused() -> None:
    """Up to 16 octets are quoted in full, of more the first 16."""
    bad = frame(8, 0, b"ab")[:-1] + b"\x00"
    assert (
        refused(bad) == "FRAME_ERROR - type 8, all octets = <<97,98>>: {invalid_frame_end_marker,0}"
    )
    bad = frame(3, 0, b"\x01" * 17)[:-1] + b"\x02"
    octets = ",".join(["1"] * 16)
    assert (
        refused(bad)
        == f"FRAME_ERROR - type 3, first 16 octets = <<{octets}>>: {{invalid_frame_end_marker,2}}"
    )


@given(methods_with_values(), st.integers(0, 65535))
def test_written_method_is_one_frame(
    example: tuple[MethodSpec, dict[str, object]], channel: int
) -> None:
    """The frame has the right length and an unsigned channel, also behind other bytes."""
    method = build(*example)
    arguments = written(method.write_arguments)
    out = BytesWriter()
    write_heartbeat(out)
    write_method_frame(out, channel, method)
    assert out.getvalue() == HEARTBEAT_FRAME + frame(
        1, channel, int(method.id).to_bytes(4, "big") + arguments
    )


@given(st.binary(max_size=300), st.integers(9, 64), st.binary(min_size=2, max_size=100))
def test_content_is_split_by_frame_max(body: bytes, frame_max: int, properties: bytes) -> None:
    """The header is one frame; body frames of at most frame_max - 8 bytes add up to the body.
    An empty body has no body frame.
    """
    stream = written(lambda out: write_content(out, 9, properties, body, frame_max))
    frames = read([stream], 0)
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
    assert frames[0] == (FRAME_HEADER, 9, header)
    assert {each[:2] for each in frames[1:]} <= {(FRAME_BODY, 9)}
    assert b"".join(each[2] for each in frames[1:]) == body
    sizes = [len(each[2]) for each in frames[1:]]
    assert all([size == frame_max - 8 for size in sizes[:-1]])
    assert all([0 < size <= frame_max - 8 for size in sizes])


def test_content_without_limit_is_one_body_frame() -> None:
    """frame_max 0 means no limit: the body is one frame."""
    frames = read([written(lambda out: write_content(out, 1, b"\x00\x00", bytes(200_000), 0))], 0)
    assert [len(each[2]) for each in frames] == [14, 200_000]


def test_channel_out_of_range_is_our_mistake() -> None:
    """Such a channel raises ValueError, compiled and interpreted alike."""
    with pytest.raises(ValueError, match="unsigned 16-bit"):
        write_method_frame(BytesWriter(), 65536, QueueDeclare())
    with pytest.raises(ValueError, match="unsigned 16-bit"):
        write_content(BytesWriter(), -1, b"\x00\x00", b"", 0)


def test_bytes_of_a_publish() -> None:
    """The encoding of one publish is fixed byte by byte."""

    def publish(out: BytesWriter) -> None:
        write_method_frame(out, 1, BasicPublish(exchange=b"e", routing_key=b"key", mandatory=True))
        write_content(out, 1, b"\x10\x00\x02", b"hello", 4096)

    assert written(publish).hex(" ") == (
        "01 00 01 00 00 00 0d 00 3c 00 28 00 00 01 65 03 6b 65 79 01 ce "
        "02 00 01 00 00 00 0f 00 3c 00 00 00 00 00 00 00 00 00 05 10 00 02 ce "
        "03 00 01 00 00 00 05 68 65 6c 6c 6f ce"
    )
    assert PROTOCOL_HEADER.hex(" ") == "41 4d 51 50 00 00 09 01"
    assert FRAME_METHOD == 1
