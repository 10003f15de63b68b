"""Definitions on a real node: at the start, over the admin protocol, with logins, over restarts."""

import json
import logging
import time
from pathlib import Path

import pika
import pytest

from tests.support.brokers.node_thread import NodeThread
from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, LocalAddress
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.admin.client.definitions import import_definitions
from warrenmq.admin.protocol.control import (
    IMPORT_CANCELLED,
    IMPORT_DONE,
    CancelImport,
    DeleteVhost,
    Done,
    ExportDefinitions,
    Exported,
    GetImport,
    ImportDefinitions,
    ImportStatus,
)

GOLDEN = Path(__file__).with_name("golden")
# Each user of the golden exports who has a password, with a vhost that it may enter.
LOGINS = [
    ("sha256", "secret-256", "/"),
    ("sha512", "secret-512", "téam"),
    ("md5", "secret-md5", "téam"),
    ("plain", "pläin", "/"),
    ("guest", "guest", "/"),
]


def log_in(node: NodeThread, user: str, password: str, vhost: str) -> None:
    """Log in and leave."""
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters("127.0.0.1", node.port, vhost, credentials)
    pika.BlockingConnection(parameters).close()


def exported(client: AdminClient) -> bytes:
    """The definitions of the node."""
    return client.request(ExportDefinitions(), Exported).json


def local_client(node: NodeThread) -> AdminClient:
    """A session of the node's owner."""
    return AdminClient(LocalAddress(read_control_file(node.node.config.data_dir)))


def test_users_of_rabbitmq_log_in(tmp_path: Path) -> None:
    """Imported over the admin protocol, all is in force at once and survives a restart."""
    data = (GOLDEN / "management.json").read_bytes()
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        planned = import_definitions(client.request, ImportDefinitions(json=data, is_dry_run=True))
        done = import_definitions(client.request, ImportDefinitions(json=data))
        assert done == planned and done.left_out == []
        before = json.loads(exported(client))
    for login in LOGINS:
        log_in(node, *login)
    for user, password, vhost in (("nopass", "x", "/"), ("md5", "secret-md5", "/")):
        with pytest.raises((pika.exceptions.AMQPConnectionError, pika.exceptions.AMQPError)):
            log_in(node, user, password, vhost)
    node.stop()
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        after = json.loads(exported(client))
        # What is transient is gone, and the rest is what it was.
        for section in ("queues", "exchanges"):
            before[section] = [row for row in before[section] if row["durable"]]
        before["bindings"] = [row for row in before["bindings"] if row["source"] != "x.topic"]
        assert after == before
        assert (
            import_definitions(client.request, ImportDefinitions(json=exported(client))).changes
            == []
        )
        with pytest.raises(AdminRefusedError, match="no JSON object"):
            import_definitions(client.request, ImportDefinitions(json=b"["))
    log_in(node, *LOGINS[1])
    node.stop()


def many_queues() -> bytes:
    """5,000 queues, each with a binding."""
    queues = [{"name": f"q{number:05}", "vhost": "/"} for number in range(5000)]
    bindings = [
        {
            "source": "amq.topic",
            "vhost": "/",
            "destination": row["name"],
            "destination_type": "queue",
            "routing_key": f"{row['name']}.#",
        }
        for row in queues
    ]
    return json.dumps({"queues": queues, "bindings": bindings}).encode()


def test_thousands_of_queues_over_the_admin_protocol(tmp_path: Path) -> None:
    """An import is larger than other requests may be, is done in many turns, and reports them."""
    request = ImportDefinitions(json=many_queues())
    seen: list[ImportStatus] = []
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        assert len(import_definitions(client.request, request, seen.append).changes) == 10000
        found = json.loads(exported(client))
        assert {each.total for each in seen} >= {10000}
        assert all(0 <= each.done <= each.total for each in seen)
        # Too late: the import is over, and stays so.
        assert client.request(CancelImport(), ImportStatus).step == IMPORT_DONE
    assert [row["name"] for row in found["queues"]] == [f"q{number:05}" for number in range(5000)]
    assert len(found["bindings"]) == 5000
    node.stop()


def test_an_interrupt_cancels_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does the end of its session; nothing is changed, and the next import may begin."""
    # Takes far longer to read than the node needs for a reply.
    row = b'{"name": "x", "vhost": "/", "type": "direct"}'
    request = ImportDefinitions(json=b'{"exchanges": [' + b",".join([row] * 300_000) + b"]}")
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        before = exported(client)

        def interrupt(_seconds: float) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                import_definitions(client.request, request)
        assert client.request(GetImport(), ImportStatus).step == IMPORT_CANCELLED
        with local_client(node) as leaving:
            leaving.request(request, ImportStatus)
            with pytest.raises(AdminRefusedError, match="imports definitions already"):
                leaving.request(request, ImportStatus)
        request = ImportDefinitions(json=b'{"vhosts": [{"name": "v"}]}')
        assert import_definitions(client.request, request).changes == ["create vhost 'v'"]
        client.request(DeleteVhost(name="v"), Done)
        assert exported(client) == before
    node.stop()


def test_a_start_imports_instead_of_making_the_default_user(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files of a directory, in order; each start again, unless they are unchanged.

    They are JSON as RabbitMQ takes it, and either of RabbitMQ's keys names them.
    """
    directory = tmp_path / "definitions"
    directory.mkdir()
    (directory / "notes.txt").write_text("no definitions")
    lenient = '\ufeff// ours\n{"vhosts": [{"name": "v"},], \'users\': [{"name": "a"}]}'
    (directory / "1.json").write_text(lenient)
    (directory / "2.json").write_text('{"queues": [{"name": "q", "vhost": "v"}], "toys": [1]}')
    caplog.set_level(logging.INFO)

    def start(*settings: str) -> NodeThread:
        caplog.clear()
        return NodeThread(tmp_path, f"management.load_definitions={directory}", *settings)

    node = start("definitions.skip_if_unchanged=true")
    with local_client(node) as client:
        found = json.loads(exported(client))
    assert [row["name"] for row in found["users"] + found["vhosts"]] == ["a", "v"]
    assert found["queues"][0]["name"] == "q" and found["global_parameters"] == []
    assert "left out: 1 toys" in caplog.text
    node.stop()
    node = start("definitions.skip_if_unchanged=true")
    assert "are those of the last import" in caplog.text
    node.stop()
    (directory / "2.json").write_text('{"vhosts": [{"name": "w"}]}')
    node = start("definitions.skip_if_unchanged=true")
    assert caplog.text.count("imported definitions from") == 2
    assert sorted(node.node.broker.vhosts) == [b"v", b"w"]
    node.stop()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "no JSON object"),
        ('{"queues": [\n}', "line 2, column 1: expected a value or ], got '}'"),
        ('{"queues": [{"name": "q", "vhost": "v"}]}', 'queues[0]: Virtual host "v" does not exist'),
    ],
)
def test_definitions_that_cannot_be_imported_stop_the_start(
    tmp_path: Path, content: str, reason: str
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(content)
    node = BrokerProcess(tmp_path / "node", f"load_definitions={file}")
    assert node.refused() == 1
    (line,) = [line for line in node.errors() if reason in line]
    assert str(file) in line
