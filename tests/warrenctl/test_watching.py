"""What a node says of itself: events, counts of logins, certificates, environment variables."""

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pika
import pytest
from pika.exceptions import AMQPError

from tests.support.brokers.tls_process import TlsBroker
from warrenmq.cli.control import main

SCRIPT: Final = "from warrenmq.cli.control import script; script()"
# Recorded from RabbitMQ 3.10.8 after the same logins.
BY_SOURCE: Final = {
    "table": (
        "remote_address\tusername\tprotocol\tauth_attempts\tauth_attempts_failed"
        "\tauth_attempts_succeeded\n"
        "127.0.0.1\tguest\tamqp091\t2\t1\t1\n127.0.0.1\tnobody\tamqp091\t1\t1\t0\n"
    ),
    "csv": (
        '"remote_address","username","protocol","auth_attempts","auth_attempts_failed",'
        '"auth_attempts_succeeded"\n'
        '"127.0.0.1","guest","amqp091","2","1","1"\n"127.0.0.1","nobody","amqp091","1","1","0"\n'
    ),
    "json": (
        '{"attempts":[{"auth_attempts":2,"auth_attempts_failed":1,"auth_attempts_succeeded":1,'
        '"protocol":"amqp091","remote_address":"127.0.0.1","username":"guest"},'
        '{"auth_attempts":1,"auth_attempts_failed":1,"auth_attempts_succeeded":0,'
        '"protocol":"amqp091","remote_address":"127.0.0.1","username":"nobody"}],'
        '"node":"NODE","result":"ok"}\n'
    ),
    "erlang": """[[{remote_address,<<"127.0.0.1">>},
  {username,<<"guest">>},
  {protocol,<<"amqp091">>},
  {auth_attempts,2},
  {auth_attempts_failed,1},
  {auth_attempts_succeeded,1}],
 [{remote_address,<<"127.0.0.1">>},
  {username,<<"nobody">>},
  {protocol,<<"amqp091">>},
  {auth_attempts,1},
  {auth_attempts_failed,1},
  {auth_attempts_succeeded,0}]]
""",
}

EVENTS: Final = (("user.created", "visitor"), ("user.deleted", "visitor"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A node with a TLS listener; the commands find it by its data directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_NODENAME", "watched@localhost")
        patch.setenv("WARREN_DEFAULT_PASS", "guest")
        patch.setenv("WARREN_CONF__loopback_users__guest", "true")
        patch.setenv("WARREN_SERVICE_HOST", "not a setting")
        process = TlsBroker(tmp_path_factory.mktemp("watched"))
        process.start()
        patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
        yield process
        process.stop()


def log_in(node: TlsBroker, user: str, password: str) -> None:
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters("127.0.0.1", node.port, credentials=credentials)
    with suppress(AMQPError):
        pika.BlockingConnection(parameters).close()


def test_logins_are_counted_by_source(node: TlsBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-q", "enable_auth_attempt_source_tracking"]) == 0
    assert main(["-q", "reset_node_auth_attempt_metrics"]) == 0
    for user, password in (("guest", "guest"), ("guest", "bad"), ("nobody", "bad")):
        log_in(node, user, password)
    assert main(["-q", "disable_auth_attempt_source_tracking"]) == 0
    log_in(node, "guest", "guest")
    capsys.readouterr()
    assert main(["-s", "list_node_auth_attempt_stats"]) == 0
    assert capsys.readouterr().out == "amqp091\t4\t2\t2\n"
    for name, expected in BY_SOURCE.items():
        words = ["-q", "list_node_auth_attempt_stats", "--by-source", "--formatter", name]
        assert main(words) == 0
        assert capsys.readouterr().out.replace("watched@localhost", "NODE") == expected


def test_events_come_as_lines_until_the_time_is_over(node: TlsBroker) -> None:
    words = ["consume_event_stream", "--pattern", "^user", "-d", "600"]
    command = [sys.executable, "-c", SCRIPT, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stream:
        try:
            # The command watches from some moment on: a user comes and goes until it sees one.
            while not _has_line(stream):
                assert main(["-q", "add_user", "visitor", "pw"]) == 0
                assert main(["-q", "delete_user", "visitor"]) == 0
            assert stream.stdout is not None
            event = json.loads(stream.stdout.readline())
        finally:
            stream.terminate()
    assert (event["event"], event["name"]) in EVENTS
    assert event["user_who_performed_action"] == "rmq-cli"
    assert main(["consume_event_stream", "-d", "1", "--pattern", "("]) == 65


def _has_line(stream: subprocess.Popen[str]) -> bool:
    assert stream.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(stream.stdout, selectors.EVENT_READ)
        return bool(selector.select(0.1))


def test_certificates_are_those_of_the_files(
    node: TlsBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certificates", "--formatter", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["certfile"] == Path(node.identity.certfile).read_text()
    assert row["cacertfile"] == Path(node.authority.certfile).read_text()
    assert (row["protocol"], row["port"]) == ("amqp/ssl", node.tls_port)
    assert main(["-q", "certificates"]) == 0
    assert capsys.readouterr().out.startswith('[#{cacertfile =>\n       <<"-----BEGIN CERT')


def test_variables_are_those_that_set_something(
    node: TlsBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "os_env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "WARREN_NODENAME=watched@localhost" in lines
    assert "WARREN_CONF__loopback_users__guest=true" in lines
    assert "WARREN_DEFAULT_PASS=(hidden)" in lines
    assert not [line for line in lines if "SERVICE_HOST" in line]
