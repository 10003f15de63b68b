"""The scan finds the same messages wherever the stream is cut, and stops where it is not AMQP."""

from random import Random

import pytest
from librt.strings import BytesWriter

from warrenmq.perf.errors import PerfError
from warrenmq.perf.frame_scan import (
    BASIC_ACK,
    BASIC_DELIVER,
    BASIC_NACK,
    BASIC_RETURN,
    NO_TIMESTAMP,
    FrameScanner,
)
from warrenmq.wire.encode import write_content, write_heartbeat, write_method_frame
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicDeliver,
    BasicNack,
    BasicReturn,
    ConnectionBlocked,
)

PROPERTIES = b"\x10\x00\x02"


class Recorder(FrameScanner):
    """A scanner that records the calls of its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[object, ...]] = []

    def on_message(self, method: int, delivery_tag: int, timestamp: int) -> None:
        self.seen.append((method, delivery_tag, timestamp))

    def on_confirm(self, method: int, publish_seq: int, multiple: bool) -> None:
        self.seen.append((method, publish_seq, multiple))

    def on_method(self, data: bytes, start: int, end: int) -> None:
        self.seen.append((data[start : start + 4], end - start))


def frame(method: Method) -> bytes:
    out = BytesWriter()
    write_method_frame(out, 1, method)
    return out.getvalue()


def delivery(tag: int, body: bytes, frame_max: int = 4096) -> bytes:
    out = BytesWriter()
    write_method_frame(
        out, 1, BasicDeliver(consumer_tag=b"c" * (tag % 5), delivery_tag=tag, exchange=b"e")
    )
    write_content(out, 1, PROPERTIES, body, frame_max)
    return out.getvalue()


def stamped(timestamp: int, size: int) -> bytes:
    return timestamp.to_bytes(8, "big") + b"\xce" * (size - 8)


def example_stream() -> tuple[bytes, list[tuple[object, ...]]]:
    out = BytesWriter()
    expected: list[tuple[object, ...]] = []
    for tag, size in enumerate([8, 100, 0, 7, 4088, 4089, 20000, 9], start=1):
        has_timestamp = size >= 8
        out.write(delivery(tag, stamped(tag * 1000, size) if has_timestamp else bytes(size)))
        expected.append((BASIC_DELIVER, tag, tag * 1000 if has_timestamp else NO_TIMESTAMP))
        if tag == 3:
            write_heartbeat(out)
        if tag == 4:
            out.write(frame(BasicAck(delivery_tag=17, multiple=True)))
            expected.append((BASIC_ACK, 17, True))
            out.write(frame(BasicNack(delivery_tag=18)))
            expected.append((BASIC_NACK, 18, False))
            out.write(frame(ConnectionBlocked(reason=b"low on memory")))
            expected.append((b"\x00\x0a\x00\x3c", 4 + 1 + 13))
            write_method_frame(out, 1, BasicReturn(reply_code=312, reply_text=b"NO_ROUTE"))
            write_content(out, 1, PROPERTIES, stamped(5, 30), 4096)
            expected.append((BASIC_RETURN, 0, 5))
    return out.getvalue(), expected


def test_a_stream_in_one_chunk() -> None:
    stream, expected = example_stream()
    recorder = Recorder()
    recorder.scan(stream)
    assert recorder.seen == expected


def test_octet_by_octet() -> None:
    stream, expected = example_stream()
    recorder = Recorder()
    for position in range(len(stream)):
        recorder.scan(stream[position : position + 1])
    assert recorder.seen == expected


def test_cut_anywhere() -> None:
    stream, expected = example_stream()
    random = Random(1)
    for _ in range(300):
        cuts = sorted(random.randrange(len(stream)) for _ in range(random.randrange(1, 12)))
        recorder = Recorder()
        for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            recorder.scan(stream[first:last])
        assert recorder.seen == expected, cuts


def test_a_large_body_is_not_kept() -> None:
    recorder = Recorder()
    stream = delivery(1, stamped(77, 1_000_000), frame_max=0)
    recorder.scan(stream[:2000])
    for position in range(2000, len(stream), 1000):
        recorder.scan(stream[position : position + 1000])
        assert len(recorder._tail) < 200
    assert recorder.seen == [(BASIC_DELIVER, 1, 77)]


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"\x01\x00\x01\x00\x02\x00\x01" + bytes(200000), "octets"),
        (b"\x05\x00\x01\x00\x00\x00\x00\xce", "unknown type 5"),
        (b"\x01\x00\x01\x00\x00\x00\x00\xce", "without a method"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x3c\xce", "ends early"),
        (b"\x01\x00\x01\x00\x00\x00\x06\x00\x3c\x00\x3c\xff\x00\xce", "ends early"),
        (b"\x01\x00\x01\x00\x00\x00\x06\x00\x3c\x00\x50\x00\x00\xce", "confirm that ends early"),
        (b"\x02\x00\x01\x00\x00\x00\x02\x00\x3c\xce", "fewer than 14"),
        (b"\x03\x00\x01\x00\x00\x00\x02\x00\x3c\xce", "more body octets"),
        (b"\x08\x00\x00\x00\x00\x00\x00\xcd", "without its end octet"),
    ],
)
def test_what_is_not_amqp_ends_the_run(stream: bytes, text: str) -> None:
    with pytest.raises(PerfError, match=text):
        Recorder().scan(stream)


def test_a_body_frame_without_its_end_octet() -> None:
    stream = bytearray(delivery(1, bytes(100)))
    stream[-1] = 0
    with pytest.raises(PerfError, match="body frame without its end octet"):
        Recorder().scan(bytes(stream))
