"""Makes the corpora anew: `PYTHONPATH=src python -m tests.fuzz.make_corpus [READER]...`

Inputs are real ones: what the tests of a reader feed it, files of a store that has been used,
golden files. Of each reader's candidates, those are kept that take steps from line to line which
the others do not take; inputs that were findings once have names, and stay. The sources must be
interpreted, since lines are traced. What the tests feed is recorded once, in build/fuzz: remove the
file to record anew.
"""

import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from tests.cluster.links.pairs import FROM, TO, TestNode, identity, output
from tests.fuzz.campaign import CORPUS, Reader
from tests.fuzz.cluster_readers import recorded_frames, sequence_of
from tests.fuzz.readers import READERS
from tests.support.brokers.administered_broker import AdministeredBroker
from tests.support.brokers.amqp_frames import PROTOCOL_HEADER
from tests.support.brokers.memory_broker import EngineLink
from tests.support.rabbitmq.directories import EVERY_TYPE
from tests.support.rabbitmq.files import (
    journal_ack,
    journal_delivered,
    journal_publish,
    make_node,
    make_queue,
    message_term,
    segment_mark,
    segment_publish,
    store_record,
)
from tests.support.stores.store_driver import CheckedStore, close_drivers
from warrenmq.admin.protocol.requests import LENGTH_BYTES, decode_request
from warrenmq.admin.protocol.sinks import StageMessages
from warrenmq.admin.server import AdminSession
from warrenmq.cluster.links.frames import CONTROL, DATA
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.records import ClusterMeta, Member, RunningNode, encode_record
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.spark.streams.offsets import OffsetFormat, queue_key
from warrenmq.tables.blocks import BlockBatches
from warrenmq.wire.field_table import Field, encode_table

ROOT = Path(__file__).parent.parent.parent
RECORDING = ROOT / "build" / "fuzz" / "recorded.msgpack"
FILES_MAX = 18
# So many inputs are kept at least, if there are any.
FILES_MIN = 6
RECORDED_MAX = 5000
CANDIDATES_MAX = 400
# Bytes of one input and of one corpus. Directories hold several files.
INPUT_BYTES_MAX = 2500
CORPUS_BYTES_MAX = 7000
DIRECTORY_BYTES_MAX = 12_000
LARGE = ("directory", "rabbitmq-directory", "definitions", "connection")

Candidates = dict[str, list[bytes]]
Step = tuple[CodeType, int, int]
# A class, its method, the place of the bytes among the arguments, and the reader that they are for.
# Inputs of one object are one sequence when the reader takes sequences.
RECORDED: tuple[tuple[type, str, int, str], ...] = (
    (EngineLink, "send", 0, "connection"),
    (AdminSession, "receive", 0, "admin"),
    (MirrorApplier, "apply", 0, "payloads"),
    (NodeCalls, "take_call", 1, "calls"),
    (NodeCalls, "take_answer", 1, "calls"),
    (AdministeredBroker, "import_definitions", 0, "definitions"),
    (BlockBatches, "build", 0, "record-block"),
)
# Functions that modules have imported by name.
RECORDED_FUNCTIONS = (
    ("tests.cluster.mirrors.test_records.decode_record", "replica"),
    ("warrenmq.cluster.mirrors.replicas.decode_record", "replica"),
    ("tests.server.listening.test_proxy_parser.parse_header", "proxy"),
    ("tests.support.brokers.memory_node.decode_reply", "admin-payload"),
)
TESTS = (
    "tests/protocol",
    "tests/admin/readers",
    "tests/admin/definitions/test_import.py",
    *("tests/admin/" + name for name in ("test_session.py", "test_sinks.py", "test_listings.py")),
    "tests/queues/mirror",
    "tests/cluster/links",
    "tests/cluster/mirrors",
    "tests/server/listening/test_proxy_parser.py",
    "tests/spark/test_blocks.py",
)


def record_tests() -> Candidates:
    """What tests of the readers feed them."""
    streams: dict[str, dict[int, list[bytes]]] = defaultdict(dict)
    alive: list[object] = []

    def recorder(name: str, place: int, original: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(self: object, *arguments: Any, **named: Any) -> Any:
            alive.append(self)
            streams[name].setdefault(id(self), []).append(bytes(arguments[place]))
            return original(self, *arguments, **named)

        return recorded

    def function(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(data: bytes) -> Any:
            streams[name].setdefault(len(streams[name]), []).append(bytes(data))
            return original(data)

        return recorded

    with ExitStack() as stack:
        for owner, method, place, name in RECORDED:
            original = getattr(owner, method)
            stack.enter_context(patch.object(owner, method, recorder(name, place, original)))
        for path, name in RECORDED_FUNCTIONS:
            module, _, attribute = path.rpartition(".")
            try:
                found = getattr(
                    sys.modules.get(module) or __import__(module, fromlist=["_"]), attribute
                )
            except AttributeError:
                continue
            stack.enter_context(patch(path, function(name, found)))
        pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not slow and not spark", *TESTS])
    close_drivers()
    return _joined(streams)


def _joined(streams: dict[str, dict[int, list[bytes]]]) -> Candidates:
    found: Candidates = defaultdict(list)
    for name, by_object in streams.items():
        for pieces in by_object.values():
            if name == "payloads":
                found[name].append(sequence_of(pieces))
            elif name in ("connection", "admin"):
                found[name].append(b"".join(pieces).removeprefix(PROTOCOL_HEADER))
            else:
                found[name] += pieces
    found["frames"] = list(found["connection"])
    for stream in found["admin"]:
        for payload in _payloads(stream):
            found["admin-payload"].append(payload)
            try:
                request = decode_request(payload)
            except ValueError:
                continue
            if isinstance(request, StageMessages):
                found["staged-block"].append(bytes(request.block))
    return found


def _payloads(stream: bytes) -> Iterator[bytes]:
    at = 0
    while at + LENGTH_BYTES <= len(stream):
        end = at + LENGTH_BYTES + int.from_bytes(stream[at : at + LENGTH_BYTES], "big")
        yield stream[at + LENGTH_BYTES : end]
        at = end


def add_made(found: Candidates) -> None:
    """Inputs from golden files, from scripted conversations and from the formats' own writers."""
    for line in (ROOT / "tests/wire/golden/methods.jsonl").read_text().splitlines():
        found["method"].append(bytes.fromhex(json.loads(line)["frame"])[7:-1])
    for line in (ROOT / "tests/wire/golden/properties.jsonl").read_text().splitlines():
        found["properties"].append(bytes.fromhex(json.loads(line)["block"]))
    every = encode_table(EVERY_TYPE)
    inner = encode_table({"in": Field(ord("F"), dict(EVERY_TYPE)), "a": Field(ord("A"), [])})
    found["table"] += [every, inner, *(encode_table({n: f}) for n, f in EVERY_TYPE.items())]
    for path in (ROOT / "tests/admin/definitions/golden").iterdir():
        found["definitions"].append(path.read_bytes())
    found["operations"], found["events"] = map(_cut, recorded_frames())
    found["link"] = link_streams()
    add_json(found)
    offsets = OffsetFormat("group", "/")
    keys = {queue_key(b"q", 1): 7, queue_key(b"\xff/#", 2, "n@h", 9): 1 << 60}
    found["offset"] = [json.dumps(offsets.encode(keys)).encode(), b"{}"]
    requests = json.loads((ROOT / "tests/management/requests.json").read_text())
    for user, method, path, body in requests:
        text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        found["http"].append(f"{user} {method} {path}\n{text}".encode())
        found["http-body"].append(text.encode())
    part = '--XX\r\ncontent-disposition: form-data; name="file"\r\n\r\n{"queues": []}\r\n--XX--\r\n'
    nested = part.replace(
        "\r\n\r\n", "\r\ncontent-type: multipart/mixed; boundary=YY\r\n\r\n--YY\r\n", 1
    )
    found["http-form"] = [part.encode(), nested.encode()]
    add_store(found)
    found["rabbitmq-directory"] = list(rabbitmq_directories())
    found["rabbitmq-message"] += [message_term(1, b"body"), message_term(2, b"", keys=(b"a", b"b"))]


def add_json(found: Candidates) -> None:
    """Records of etcd, and a schedule of jobs."""
    records = (
        ClusterMeta("5f2d", "secret", 1, 2, "before"),
        Member("replica", 1),
        RunningNode("replica", 1, "host", 25672, "0.1.0", (("amqp", "::", 5672),)),
    )
    found["etcd-record"] = [encode_record(record) for record in records]
    found["schedule"] = [
        b'{"job": "report", "user": "guest", "cron": "1 2 * * *", "arguments": {"x": [1]}}',
        b'{"job": "verify", "user": "guest", "interval": 60, "node": "n@h"}',
    ]


def _cut(frames: list[bytes]) -> list[bytes]:
    return [sequence_of(frames[:end]) for end in (4, 8, len(frames))]


def link_streams() -> list[bytes]:
    """What a dialling node sends: its handshake, pings, frames of both lanes, a chunked payload."""
    sent = []
    for size in (0, 10, 140_000):
        dialler, acceptor = TestNode(identity("a@one")), TestNode(identity("b@two"))
        link = dialler.links.dialled("b@two", TO, 0)
        other = acceptor.links.accepted(FROM, 0)
        stream = b""
        for _ in range(3):
            said = output(link)
            stream += said
            other.receive(said, 0)
            link.receive(output(other), 0)
        link.send(CONTROL, 48, b"call")
        link.send(DATA, 20, bytes(size))
        link.tick(2000)
        stream += output(link)
        sent.append(stream)
    return sent


def add_store(found: Candidates) -> None:
    """Directories of stores that were used in random ways, and their files."""
    for seed in range(12):
        with tempfile.TemporaryDirectory() as place:
            store = CheckedStore(Path(place))
            rng = random.Random(seed)
            store.churn(rng, 12 + 4 * (seed % 3))
            if seed % 2:
                store.index(rng.choice((1, 2, 3)))
                store.checkpoint()
                store.churn(rng, 4)
            store.close()
            files = {
                path.relative_to(place).as_posix(): path.read_bytes()
                for path in sorted(Path(place).rglob("*"))
                if path.is_file()
            }
        for name, data in files.items():
            files[name] = data.rstrip(b"\x00") if name.endswith(".wal") else data
            kind = {"wal": "journal", "rdq": "contents", "idx": "segment"}.get(
                name.rpartition(".")[2], "checkpoint"
            )
            if name != "store_id":
                found[kind].append(files[name])
                found["records"].append(files[name])
        found["directory"].append(msgspec.msgpack.encode(files))


def rabbitmq_directories() -> Iterator[bytes]:
    """Small directories with messages in segments, in the journal and in the store."""
    term = message_term(3, b"embedded")
    large = message_term(4, b"stored" * 9)
    forms = (
        {"0.idx": segment_publish(0, 3, term) + segment_mark(0) + segment_publish(1, 4)},
        {"journal.jif": journal_publish(0, 3, term) + journal_delivered(0) + journal_publish(1, 4)},
        {
            "0.idx": segment_publish(0, 3, term) + segment_mark(0),
            "journal.jif": journal_ack(0) + journal_publish(17, 4),
        },
    )
    for form in forms:
        with tempfile.TemporaryDirectory() as place:
            vhost = make_node(Path(place))
            (vhost / "msg_store_persistent" / "0.rdq").write_bytes(store_record(4, large))
            make_queue(vhost, b"q", form)
            yield msgspec.msgpack.encode(
                {
                    path.relative_to(place).as_posix(): path.read_bytes()
                    for path in sorted(Path(place).rglob("*"))
                    if path.is_file()
                }
            )


def steps_of(reader: Reader, data: bytes) -> set[Step]:
    """The steps from line to line of warren that reading `data` takes."""
    found: set[Step] = set()
    last = 0

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal last
        if event == "line":
            found.add((frame.f_code, last, frame.f_lineno))
            last = frame.f_lineno
        return local

    def trace(frame: FrameType, _event: str, _argument: object) -> Any:
        return local if "warrenmq" in frame.f_code.co_filename else None

    sys.settrace(trace)
    try:
        reader.read(data)
    except reader.errors:
        pass
    except Exception as error:  # Undocumented errors of a reader are shown, not raised.
        print(f"a finding already: {error!r} for {data[:200]!r}")
    finally:
        sys.settrace(None)
    return found


def chosen(name: str, reader: Reader | None, candidates: list[bytes]) -> list[bytes]:
    """A few candidates that together take almost all steps that any of them takes."""
    limit = DIRECTORY_BYTES_MAX if name in LARGE else INPUT_BYTES_MAX
    total = 4 * CORPUS_BYTES_MAX if name in LARGE else CORPUS_BYTES_MAX
    small = sorted(
        {each for each in candidates if len(each) <= limit}, key=lambda each: (len(each), each)
    )
    rng = random.Random(1)
    if len(small) > CANDIDATES_MAX:
        small = sorted(rng.sample(small, CANDIDATES_MAX), key=lambda each: (len(each), each))
    if reader is None:
        return rng.sample(small, min(len(small), 10 * FILES_MAX))
    lines = [(each, steps_of(reader, each)) for each in small]
    kept: list[bytes] = []
    seen: set[Step] = set()
    while len(kept) < FILES_MAX:
        room = total - sum(map(len, kept))
        best = max(
            (pair for pair in lines if len(pair[0]) <= room),
            key=lambda pair: len(pair[1] - seen),
            default=(b"", set()),
        )
        if not best[1] - seen:
            break
        kept.append(best[0])
        seen |= best[1]
    for each in rng.sample(small, len(small)):
        if len(kept) < FILES_MIN and each not in kept and len(each) <= total - sum(map(len, kept)):
            kept.append(each)
    return kept


def main() -> None:
    wanted = sys.argv[1:] or [*READERS, "http"]
    if RECORDING.exists():
        found = msgspec.msgpack.decode(RECORDING.read_bytes(), type=Candidates)
    else:
        found = {
            name: [each for each in inputs if len(each) <= DIRECTORY_BYTES_MAX][:RECORDED_MAX]
            for name, inputs in record_tests().items()
        }
        RECORDING.parent.mkdir(parents=True, exist_ok=True)
        RECORDING.write_bytes(msgspec.msgpack.encode(found))
    found = defaultdict(list, found)
    add_made(found)
    for name in wanted:
        place = CORPUS / name
        place.mkdir(parents=True, exist_ok=True)
        for path in place.glob("[0-9]*"):
            path.unlink()
        kept = chosen(name, READERS.get(name), found[name])
        if name == "http":
            (place / "requests").write_bytes(msgspec.msgpack.encode(kept))
        else:
            for number, data in enumerate(kept):
                (place / f"{number:02}").write_bytes(data)
        size = sum(map(len, kept))
        print(f"{name}: {len(kept)} of {len(found[name])} inputs, {size} bytes")


if __name__ == "__main__":
    main()
