"""Feeds the codec many damaged inputs and checks that only ConnectionException comes out.

python -m tests.wire.fuzz_codec --inputs 1000000 [--seed 1]

Inputs are valid encodings of every method, table and property block, damaged in the ways that hurt
parsers most: wrong lengths, cut ends, swapped pieces, flipped bits; some are plain noise. An input
that still decodes must encode and decode again to the same bytes. Exits 1 on another exception
(printing the input, which then belongs into a test) or when peak memory grows by more than
RSS_GROWTH_MAX_MIB after the first twentieth of the run.
"""

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable

from librt.strings import BytesWriter

from tools.generate_wire import SPEC, Argument, load_spec
from warrenmq.wire import methods
from warrenmq.wire.encode import write_content, write_method_frame
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.field_table import decode_table, encode_table, to_python, validate_table
from warrenmq.wire.frames import FRAME_METHOD, FrameBuffer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import decode_method
from warrenmq.wire.properties import Properties, decode_properties, delivery_mode

RSS_GROWTH_MAX_MIB = 8.0
INPUT_BYTES_MAX = 4096
INTERESTING = [
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xce",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
]
INTERESTING += [
    b"\x80\x00\x00\x00",
    b"\x00\x00\x10\x00",
    *[tag.encode() for tag in "tbBsuIilLfdDSxAFTVU"],
]

# (the target that reads the input, a valid input for the target)
Seed = tuple[str, bytes]


def sample_table(rng: random.Random, depth: int = 0) -> bytes:
    """A valid table with every type in it, sometimes nested deeper than is accepted."""
    body = b""
    values = [
        b"t\x01",
        b"b\x80",
        b"B\xff",
        b"s\x80\x00",
        b"u\xff\xff",
        b"I" + bytes(4),
        b"i\xff\xff\xff\xff",
    ]
    values += [
        b"l" + bytes(8),
        b"L\xff" + bytes(7),
        b"f\x7f\xc0\x00\x00",
        b"d\x7f\xf8" + bytes(6),
        b"D\x02" + bytes(4),
    ]
    values += [
        b"S\x00\x00\x00\x03abc",
        b"x\x00\x00\x00\x01\xff",
        b"T" + b"\xff" * 8,
        b"V",
        b"A\x00\x00\x00\x02VV",
    ]
    for value in rng.sample(values, rng.randint(0, len(values))):
        body += b"\x02n" + bytes([rng.randint(97, 122)]) + value
    for _ in range(rng.randint(1, 70) if depth == 0 and rng.random() < 0.2 else rng.randint(0, 2)):
        body = (
            b"\x01k"
            + rng.choice([b"F", b"F", b"A\x00\x00\x00\x00\x01bF"])
            + len(body).to_bytes(4, "big")
            + body
        )
    return body


def sample_value(rng: random.Random, argument: Argument) -> object:
    if argument.type == "bit":
        return rng.random() < 0.5
    if argument.type in {"octet", "short", "long", "longlong"}:
        bits = {"octet": 8, "short": 16, "long": 32, "longlong": 63}[argument.type]
        return rng.choice([0, 1, (1 << bits) - 1])
    if argument.type == "table":
        return sample_table(rng)
    return rng.choice([b"", b"queue", "né".encode(), b"r" * 255])


def method_payload(method: Method) -> bytes:
    out = BytesWriter()
    write_method_frame(out, 1, method)
    return out.getvalue()[7:-1]


def sample_properties(rng: random.Random) -> bytes:
    text = rng.choice([b"", b"text/plain", b"p" * 255])
    headers = sample_table(rng) if rng.random() < 0.7 else None
    return Properties(
        content_type=text,
        headers=headers,
        delivery_mode=2,
        timestamp=rng.getrandbits(64),
        app_id=text,
    ).encode()


def make_seeds(rng: random.Random) -> list[Seed]:
    """Valid inputs; each method several times, so that every argument takes several values."""
    seeds: list[Seed] = []
    for spec in load_spec(SPEC) * 4:
        values = {argument.name: sample_value(rng, argument) for argument in spec.live}
        method = getattr(methods, spec.python_class)(**values)
        seeds.append(("method", method_payload(method)))
        out = BytesWriter()
        write_method_frame(out, rng.randint(0, 65535), method)
        write_content(
            out, 1, sample_properties(rng), rng.randbytes(rng.randint(0, 100)), rng.choice([0, 64])
        )
        seeds.append(("stream", out.getvalue()))
    for _ in range(200):
        seeds.append(("table", sample_table(rng)))
        seeds.append(("properties", sample_properties(rng)))
    return seeds


def damage(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """`data` after one to four accidents; most keep its length, so that damage reaches far in."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        accident = rng.choice([0, 1, 1, 1, 2, 3, 4, 5, 5, 5, 6])
        if accident == 0:
            data = data[:at]
        elif accident == 1:
            piece = rng.choice(INTERESTING)
            data = data[:at] + piece + data[at + len(piece) :]
        elif accident == 2:
            data = data[:at] + rng.choice(INTERESTING) + data[at:]
        elif accident == 3:
            data = data[:at] + data[at + rng.randint(1, 8) :]
        elif accident == 4:
            data = data[:at] + other[rng.randrange(len(other) + 1) :]
        elif accident == 5 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        else:
            piece = data[at : at + rng.randint(1, 32)]
            data = data[:at] + piece + data[at:]
    return data[:INPUT_BYTES_MAX]


def read_method(data: bytes, rng: random.Random) -> None:
    method = decode_method(data, 0, len(data))
    again = method_payload(method)
    # The first pass removes reserved arguments and unused bits; the second may change nothing.
    assert method_payload(decode_method(again, 0, len(again))) == again


def read_table(data: bytes, rng: random.Random) -> None:
    table = decode_table(data)
    validate_table(data, 0, len(data))
    to_python(table)
    again = encode_table(table)
    assert encode_table(decode_table(again)) == again


def read_properties(data: bytes, rng: random.Random) -> None:
    mode = delivery_mode(data)
    properties = decode_properties(data)
    assert mode == (properties.delivery_mode or 0)
    again = properties.encode()
    assert decode_properties(again).encode() == again


def read_stream(data: bytes, rng: random.Random) -> None:
    """Read the stream in chunks and decode methods as a connection would."""
    buffer = FrameBuffer(4096)
    at = 0
    while at < len(data):
        size = rng.randint(1, 200)
        buffer.feed(data[at : at + size])
        at += size
        while (kind := buffer.next_frame()) >= 0:
            if kind == FRAME_METHOD:
                decode_method(buffer.data, buffer.start, buffer.end)


TARGETS: dict[str, Callable[[bytes, random.Random], None]] = {
    "method": read_method,
    "table": read_table,
    "properties": read_properties,
    "stream": read_stream,
}


def peak_rss_mib() -> float:
    # Linux counts KiB, macOS bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 if sys.platform != "darwin" else 1 << 20
    )


def fuzz(inputs: int, seed: int) -> tuple[Counter[str], float, float]:
    """Outcomes by kind, and peak memory in MiB after a twentieth of the inputs and at the end.

    Any exception but ConnectionException is raised on, with the input as a note.
    """
    rng = random.Random(seed)
    seeds = make_seeds(rng)
    outcomes: Counter[str] = Counter()
    before = peak_rss_mib()
    for index in range(inputs):
        if index == inputs // 20:
            before = peak_rss_mib()
        target, data = rng.choice(seeds)
        if index % 16 == 0:
            data = rng.randbytes(rng.randint(0, 64))
        else:
            # An unknown method ends the reading at once, so most damage spares the id.
            spared = 4 if target == "method" and index % 8 else 0
            data = data[:spared] + damage(rng, data[spared:], rng.choice(seeds)[1])
        try:
            TARGETS[target](data, rng)
            outcomes[f"{target} decoded"] += 1
        except ConnectionException as error:
            assert len(error.text.encode()) <= 255
            outcomes[f"{target} refused with {error.code}"] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, input {index}, {target} {data.hex()}")
            raise
    return outcomes, before, peak_rss_mib()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    build = "interpreted" if methods.__file__.endswith(".py") else "compiled"
    started = time.monotonic()
    outcomes, before, after = fuzz(options.inputs, options.seed)
    print(
        f"{options.inputs} inputs, seed {options.seed}, codec {build}, {time.monotonic() - started:.1f} s"
    )
    for outcome, count in sorted(outcomes.items()):
        print(f"  {outcome:32} {count:9}")
    print(f"peak RSS {before:.1f} MiB after a twentieth, {after:.1f} MiB at the end")
    return 1 if after - before > RSS_GROWTH_MAX_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
