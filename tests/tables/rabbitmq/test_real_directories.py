"""Tests directories of a real RabbitMQ 3.x, stopped or killed: all messages, exact and in order."""

import json
import random
import shutil
from pathlib import Path

import pytest

from bench.brokers import rabbitmq_server
from tests.support.rabbitmq.directories import (
    EXPIRY_MS,
    JOURNAL_BYTES_MIN,
    JOURNAL_PATH,
    OTHER_VHOST,
    Expected,
    RealDirectories,
)
from warrenmq.admin.definitions.document import parse_document
from warrenmq.pipeline.rabbitmq.imported_definitions import defined_queues
from warrenmq.tables.rabbitmq.damage import Damage
from warrenmq.tables.rabbitmq.import_plan import ImportPlan, directory_name, plan
from warrenmq.tables.rabbitmq.reading import BATCH_BYTES, BATCH_ROWS, read

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(rabbitmq_server() is None, reason="rabbitmq-server is not installed"),
    # A node starts at least twice, on a machine that may be busy.
    pytest.mark.timeout(600),
]

_JOURNAL = directory_name(b"queue", b"/", b"journal")


@pytest.fixture(scope="module")
def real(rabbitmq_directories: RealDirectories) -> RealDirectories:
    """The directories, under a shorter name."""
    return rabbitmq_directories


@pytest.fixture(params=["killed", "stopped"])
def directory(request: pytest.FixtureRequest, real: RealDirectories) -> Path:
    """Each of the two directories."""
    path: Path = getattr(real, request.param)
    return path


def _queues(found: ImportPlan, damage: list[Damage]) -> dict[tuple[str, str], list[Expected]]:
    queues: dict[tuple[str, str], list[Expected]] = {
        (queue.vhost, queue.name): [] for queue in found.queues
    }
    for partition in found.partitions:
        seqs: list[int] = []
        for batch in read(partition, damage.append):
            assert batch.num_rows <= BATCH_ROWS
            assert batch.num_rows == 1 or sum(batch["size"].to_pylist()) <= BATCH_BYTES
            seqs += batch["seq"].to_pylist()
            for row in batch.select(
                ["exchange", "routing_key", "properties_raw", "body"]
            ).to_pylist():
                message = Expected(
                    row["exchange"].encode(),
                    row["routing_key"].encode(),
                    row["properties_raw"],
                    row["body"],
                )
                queues[partition.vhost, partition.queue].append(message)
        assert seqs == sorted(set(seqs))
    return queues


def test_every_message_is_there_in_order(directory: Path, real: RealDirectories) -> None:
    found = plan(directory)
    assert [item.reason for item in found.damage] == [
        "the data of a quorum queue, which is not read",
        "the data of a stream, which is not read",
    ]
    damage: list[Damage] = []
    queues = _queues(found, damage)
    assert damage == []
    assert found.vhosts == ["/", OTHER_VHOST]
    # Compare counts by queue first, for a readable failure.
    assert {name: len(messages) for name, messages in queues.items()} == {
        name: len(messages) for name, messages in real.queues.items()
    }
    for name, messages in real.queues.items():
        assert queues[name] == messages, name
    assert found.messages == sum(len(messages) for messages in real.queues.values())


def test_the_journal_has_messages_only_after_a_kill(real: RealDirectories) -> None:
    """Only a kill leaves messages in the journal, so the test above does read a journal."""
    assert (real.killed / JOURNAL_PATH).stat().st_size > JOURNAL_BYTES_MIN


def test_expiry_comes_from_the_queue(directory: Path, real: RealDirectories) -> None:
    found = plan(directory)
    (mixed,) = [queue for queue in found.queues if queue.name == "mixed"]
    batch = next(read(mixed.partitions[0], lambda damage: pytest.fail(damage.reason)))
    expires_s = batch["expires_at"][0].as_py().timestamp()
    first_s, last_s = real.published_s
    # Erlang's clock may differ a little from Python's.
    assert first_s - 60 < expires_s - EXPIRY_MS / 1000 < last_s + 60


def test_definitions_are_those_of_the_node(real: RealDirectories) -> None:
    found = parse_document(real.definitions.read_bytes())
    assert {vhost.name for vhost in found.vhosts} == {"/", OTHER_VHOST}
    names = {(queue.vhost, queue.name) for queue in found.queues}
    assert names == real.queues.keys() | {("/", "quorum"), ("/", "stream")}
    assert [exchange.name for exchange in found.exchanges] == ["fan-out"]
    assert sorted(binding.destination for binding in found.bindings) == ["fan-a", "fan-b", "fan-c"]


def test_queues_are_found_by_definitions_when_their_names_are_lost(
    real: RealDirectories, tmp_path: Path
) -> None:
    copy = tmp_path / "node"
    shutil.copytree(real.stopped, copy)
    for path in copy.rglob(".queue_name"):
        path.unlink()
    definitions = json.loads(real.definitions.read_text())
    definitions["queues"] = [queue for queue in definitions["queues"] if queue["name"] != "journal"]
    older = tmp_path / "definitions.json"
    older.write_text(json.dumps(definitions))
    found = plan(copy, defined_queues(parse_document(older.read_bytes())))
    known = {(queue.vhost, queue.name) for queue in found.queues}
    assert real.queues.keys() - known == {("/", "journal")}
    assert [item.path for item in found.damage if item.path.endswith(".queue_name")] == [
        str(
            found.path
            / "msg_stores/vhosts"
            / directory_name(b"/")
            / "queues"
            / _JOURNAL
            / ".queue_name"
        )
    ]


@pytest.mark.parametrize("seed", range(4))
def test_damage_anywhere_costs_messages_and_raises_nothing(
    real: RealDirectories, tmp_path: Path, seed: int
) -> None:
    """Flipped bits, holes of zeros and cut-off ends cost messages, but most are still read."""
    generator = random.Random(seed)
    copy = tmp_path / "node"
    shutil.copytree(real.killed, copy)
    files = sorted(
        path
        for path in (copy / "msg_stores").rglob("*.*")
        if path.suffix in {".idx", ".rdq", ".jif", ".qi", ".qs"}
    )
    for path in files:
        data = bytearray(path.read_bytes())
        if not data:
            continue
        at = generator.randrange(len(data))
        match generator.randrange(3):
            case 0:
                data[at] ^= 1 << generator.randrange(8)
            case 1:
                data[at : at + 200] = bytes(len(data[at : at + 200]))
            case 2:
                del data[-generator.randrange(1, 1000) :]
        path.write_bytes(data)
    found = plan(copy)
    damage = list(found.damage)
    queues = _queues(found, damage)
    assert damage
    read_count = published_count = 0
    for name, messages in real.queues.items():
        bodies = {message.body for message in messages}
        read_count += sum(message.body in bodies for message in queues[name])
        published_count += len(messages)
    assert read_count > published_count / 2
