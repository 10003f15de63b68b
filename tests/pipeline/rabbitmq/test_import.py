"""`import-rabbitmq` of a real RabbitMQ's directory: a node delivers every message, in order."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from bench.brokers import rabbitmq_server
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Message, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.rabbitmq.directories import OTHER_VHOST, Expected, RealDirectories
from tests.support.rabbitmq.files import make_node, make_queue, message_term, segment_publish
from tests.support.spark.inline import InlineSpark
from warrenmq.admin.definitions.document import parse_document
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import ToolError, opened
from warrenmq.pipeline.backups.restore_job import restore
from warrenmq.pipeline.rabbitmq import import_job as import_rabbitmq_job
from warrenmq.pipeline.rabbitmq.import_job import ImportResult, import_rabbitmq
from warrenmq.pipeline.rabbitmq.imported_definitions import ImportedDefinitions
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.methods import (
    BasicGet,
    BasicGetOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTuneOk,
)

real_only = pytest.mark.skipif(rabbitmq_server() is None, reason="rabbitmq-server is not installed")


@pytest.fixture(scope="module")
def real(rabbitmq_directories: RealDirectories) -> RealDirectories:
    """The session's RabbitMQ directories under a shorter name."""
    return rabbitmq_directories


def run_import(source: Path, target: Path, definitions: Path | None, **more: bool) -> ImportResult:
    spark = InlineSpark()
    return import_rabbitmq(source, target, definitions=definitions, spark=spark, **more)  # type: ignore[arg-type]  # does as much as is needed


def delivered(
    node: BrokerProcess, queues: list[tuple[str, str]]
) -> dict[tuple[str, str], list[Expected]]:
    found: dict[tuple[str, str], list[Expected]] = {}
    for vhost in {vhost for vhost, _ in queues}:
        peer = Peer(SocketLink(node.host, node.port))
        peer.start()
        peer.method(0, ConnectionTuneOk(2047, peer.frame_max, 0))
        peer.method(0, ConnectionOpen(vhost.encode()))
        peer.expect(ConnectionOpenOk)
        channel = peer.channel()
        for name in [name for where, name in queues if where == vhost]:
            rows = found[vhost, name] = []
            while isinstance(item := channel.call(BasicGet(name.encode(), True)), Message):
                assert isinstance(item.method, BasicGetOk)
                rows.append(
                    Expected(item.method.exchange, item.method.routing_key, item.raw, item.body)
                )
        peer.drop()
    return found


def must_deliver(directory: Path, expected: dict[tuple[str, str], list[Expected]]) -> None:
    node = BrokerProcess(directory.parent)
    node.start()
    try:
        found = delivered(node, list(expected))
        for name, messages in expected.items():
            assert len(found[name]) == len(messages), name
            assert found[name] == messages, name
    finally:
        node.kill()


@real_only
@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_node_on_the_result_delivers_everything(
    real: RealDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(import_rabbitmq_job, "PART_MESSAGES", 16384)
    result = run_import(getattr(real, how), tmp_path / "data", real.definitions)
    # The result reports queues whose messages are in other directories, and unsupported arguments.
    assert len(result.damage) == 2 and result.exit_code == 1 and result.lost == 0
    (left_out,) = result.left_out
    assert "unsupported queue type 'stream'" in left_out
    assert result.messages == sum(len(messages) for messages in real.queues.values())
    check = check_directory(tmp_path / "data")
    assert check.problems == [] and check.messages == result.messages
    must_deliver(tmp_path / "data", real.queues)
    assert not list(tmp_path.glob(".*"))


@real_only
@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_by_way_of_parquet_and_without_definitions(real: RealDirectories, tmp_path: Path) -> None:
    result = run_import(real.stopped, tmp_path / "parquet", None, to_parquet=True)
    assert result.messages == sum(len(messages) for messages in real.queues.values())
    for number, vhost in enumerate(sorted({vhost for vhost, _ in real.queues}), 1):
        data = tmp_path / f"node-{number}/data"
        data.parent.mkdir()
        restore(tmp_path / f"parquet/vhost-{number}", data, spark=InlineSpark())  # type: ignore[arg-type]  # as above
        must_deliver(
            data, {name: messages for name, messages in real.queues.items() if name[0] == vhost}
        )
    with pytest.raises(ToolError, match="is not empty"):
        run_import(real.stopped, tmp_path / "parquet", None)


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="is not a directory"):
        run_import(tmp_path / "nothing", tmp_path / "data", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ToolError, match="is not a data directory of RabbitMQ"):
        run_import(tmp_path / "empty", tmp_path / "data", None)
    (tmp_path / "definitions").write_text("[]")
    with pytest.raises(ToolError, match="definitions"):
        run_import(tmp_path / "empty", tmp_path / "data", tmp_path / "definitions")


def test_definitions_that_have_no_place(tmp_path: Path) -> None:
    """Unsupported definitions are reported one by one; a node's start accepts the others."""
    export = parse_document(
        b"""{"rabbit_version": "3.10.8",
        "users": [{"name": "ann", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
                   "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "administrator,other"},
                  {"name": "bob", "password_hash": "", "hashing_algorithm": "rot13"}],
        "vhosts": [{"name": "/"}, {"name": "v"}],
        "permissions": [{"user": "ann", "vhost": "v", "configure": "a", "write": "b", "read": "c"}],
        "policies": [{"vhost": "v", "name": "p", "pattern": "^q", "definition": {"message-ttl": 5}},
                     {"vhost": "v", "name": "q", "pattern": "^q", "definition": {"other": 5}}], "shovels": [1],
        "queues": [{"name": "q", "vhost": "v", "durable": true, "auto_delete": false,
                    "arguments": {"x-message-ttl": 5000, "x-max-length": 5, "x-queue-type": "stream"}},
                   {"name": "gone", "vhost": "v", "durable": false, "auto_delete": false, "arguments": {}}],
        "exchanges": [{"name": "e", "vhost": "v", "type": "topic", "durable": true, "auto_delete": false,
                       "internal": true, "arguments": {"alternate-exchange": "amq.fanout"}},
                      {"name": "h", "vhost": "v", "type": "x-recent-history", "durable": true, "auto_delete": false,
                       "internal": false, "arguments": {}}],
        "bindings": [{"source": "e", "vhost": "v", "destination": "q", "destination_type": "queue",
                      "routing_key": "a.#", "arguments": {"n": 1}},
                     {"source": "amq.topic", "vhost": "v", "destination": "e", "destination_type": "exchange",
                      "routing_key": "k", "arguments": {}},
                     {"source": "h", "vhost": "v", "destination": "q", "destination_type": "queue",
                      "routing_key": "1", "arguments": {}},
                     {"source": "e", "vhost": "v", "destination": "gone", "destination_type": "queue",
                      "routing_key": "1", "arguments": {}}]}"""
    )
    found = ImportedDefinitions(export, [(OTHER_VHOST, "found")], ["v", OTHER_VHOST])
    assert found.vhost_ids == {"/": 1, "v": 2, OTHER_VHOST: 3}
    assert found.queue_ids == {("v", "q"): 1, (OTHER_VHOST, "found"): 2}
    (queue, _) = found.definitions.queues
    assert queue.arguments == encode_table(
        fields_from_python({"x-message-ttl": 5000, "x-max-length": 5})
    )
    assert [exchange.name for exchange in found.definitions.exchanges] == [b"e"]
    assert [(binding.source, binding.key) for binding in found.definitions.bindings] == [
        (b"e", b"a.#"),
        (b"amq.topic", b"k"),
    ]
    (user,) = found.definitions.users
    assert (user.name, user.tags) == (b"ann", ["administrator", "other"])
    (permission,) = found.definitions.permissions
    assert (permission.configure, permission.write, permission.read) == ("a", "b", "c")
    (policy,) = found.definitions.parameters
    assert (policy.vhost, policy.component, policy.name) == (b"v", "policy", "p")
    assert len(found.left_out) == 7, found.left_out
    assert "1 shovels" in found.left_out


def test_permissions_come_along_and_those_without_meaning_are_said_to_be_left_out() -> None:
    """Patterns are imported as they are; one that is not supported allows nothing."""
    rows = [
        {"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "bob", "vhost": "/", "configure": "", "write": "^out-", "read": "a(?R)?"},
        {"user": "gone", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    ]
    users = [{"name": name, "password_hash": ""} for name in ("ann", "bob")]
    data = json.dumps({"vhosts": [{"name": "/"}], "users": users, "permissions": rows}).encode()
    found = ImportedDefinitions(parse_document(data), [], ["/"])
    bad = "the read permission 'a(?R)?' of user 'bob' in vhost '/': "
    assert found.left_out == [
        bad + "not supported: a group that begins with (?R at position 1, so it allows nothing",
        "the permissions of user 'gone' in vhost '/'",
    ]
    bob = found.definitions.permissions[1]
    assert (bob.user, bob.configure, bob.write, bob.read) == (b"bob", "", "^out-", "a(?R)?")
    result = ImportResult(directory=Path("new"), source=Path("old"), left_out=found.left_out)
    assert result.exit_code == 1


def test_queues_that_a_restart_would_not_have(tmp_path: Path) -> None:
    """Leftovers of transient queues make no queue; queues of the export exist, even empty."""
    vhost = make_node(tmp_path / "rabbit")
    publishes = [
        segment_publish(n, n, message_term(n, b"%d" % n), is_persistent=False) for n in range(3)
    ]
    make_queue(vhost, b"amq.gen-x", {"0.idx": b"".join(publishes)})
    make_queue(vhost, b"durable", {"0.idx": b"".join(publishes)})
    make_queue(vhost, b"full", {"0.idx": segment_publish(0, 7, message_term(7, b"7"))})
    export = {
        "vhosts": [{"name": "/"}],
        "queues": [
            {"name": "durable", "vhost": "/", "durable": True},
            {"name": "amq.gen-x", "vhost": "/", "durable": False},
        ],
        # Tools that edit exports leave such nulls.
        "users": [{"name": "ann", "tags": None, "password_hash": None}],
        "permissions": [
            {"vhost": "/", "user": "bob", "configure": ".*", "write": ".*", "read": ".*"}
        ],
    }
    (tmp_path / "export.json").write_text(json.dumps(export))
    result = run_import(tmp_path / "rabbit", tmp_path / "data", tmp_path / "export.json")
    assert (result.queues, result.messages, result.transient) == (2, 1, 6)
    assert check_directory(tmp_path / "data").problems == []
    with opened(tmp_path / "data") as data:
        assert {queue.name for queue in data.definitions.queues} == {b"durable", b"full"}
        assert [(user.name, user.tags) for user in data.definitions.users] == [(b"ann", [])]
        assert data.definitions.permissions == []
    bare = run_import(tmp_path / "rabbit", tmp_path / "bare", None)
    assert (bare.queues, bare.messages) == (3, 1)


def test_an_export_without_an_end(tmp_path: Path) -> None:
    make_node(tmp_path / "rabbit")
    for text in (
        "[" * 200_000,
        '{"queues": ' * 200_000,
        '{"queues": [7]}',
        '{"queues": [{"name": 7}]}',
        "",
    ):
        (tmp_path / "export.json").write_text(text)
        with pytest.raises(ToolError, match=r"export\.json: "):
            run_import(tmp_path / "rabbit", tmp_path / "data", tmp_path / "export.json")
