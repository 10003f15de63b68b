"""`warren status` and `warren queues` show a node's figures, and report failures in one line."""

import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.node_thread import NodeThread
from tests.support.command_line import nobody, warren, warren_json
from warrenmq import __version__
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.figures import DescribeNode, NodeStatus
from warrenmq.admin.protocol.requests import (
    LENGTH_BYTES,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    LoggedIn,
    encode_frame,
)
from warrenmq.cli.queue_rows import TITLES
from warrenmq.wire.properties import Properties

LARGE = 10_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node with three queues: `orders`, the lazy `archive`, and `empty`.

    `orders` has two small messages, of which one is unacked, and a large one; `archive` has four.
    """
    node = NodeThread(tmp_path)
    channel = node.peer().open().channel()
    channel.confirm_select()
    channel.declare(b"orders", durable=True)
    channel.declare(b"archive", durable=True, arguments=table(x__queue__mode="lazy"))
    channel.declare(b"empty")
    for body in (b"small", b"small", bytes(LARGE)):
        channel.publish(b"orders", body, PERSISTENT)
    for _ in range(4):
        channel.publish(b"archive", b"old", PERSISTENT)
    channel.confirms(7)
    channel.get(b"orders")
    yield node
    node.stop()


def test_queues(node: NodeThread) -> None:
    found = warren_json("queues", "--port", node.port)
    assert found["vhost"] == "/"
    archive, empty, orders = found["queues"]
    assert [queue["name"] for queue in found["queues"]] == ["archive", "empty", "orders"]
    assert (orders["mode"], orders["ready"], orders["unacked"], orders["next_seq"]) == (
        "default",
        2,
        1,
        4,
    )
    assert orders["alpha"]["count"] == 2 and orders["ram_count"] == 3 and orders["parts"]["q4"] == 2
    assert orders["target_ram_count"] is None and orders["ram_bytes"] > LARGE
    assert (archive["mode"], archive["ready"], archive["durable"]) == ("lazy", 4, True)
    assert archive["alpha"]["count"] + archive["delta"]["count"] == 4
    assert (empty["ready"], empty["published"], empty["durable"]) == (0, 0, False)
    lines = warren("queues", "--port", node.port).stdout.splitlines()
    assert lines[0].split() == list(TITLES)
    figures = lines[3].split()
    assert figures[:6] == ["orders", "default", "2", "1", "9.8", "KiB"]
    assert figures[9:13] == ["2", "0", "0", "0"]
    assert lines[3].endswith("none")
    assert len(lines) == 4
    assert orders["body_bytes"] == LARGE + 10


def test_queues_come_in_the_order_that_is_asked_for(node: NodeThread) -> None:
    expected = {
        "name": ["archive", "empty", "orders"],
        "bytes": ["orders", "archive", "empty"],
        "ready": ["archive", "orders", "empty"],
        "unacked": ["orders", "archive", "empty"],
    }
    for sort, names in expected.items():
        found = warren_json("queues", "--port", node.port, "--sort", sort)
        assert [queue["name"] for queue in found["queues"]] == names


def test_top_measures_rates_and_draws_nothing_into_a_pipe(node: NodeThread) -> None:
    """The traffic between two tables is what the second one shows."""
    ended = threading.Event()

    def publish() -> None:
        channel = node.peer().open().channel()
        while not ended.is_set():
            channel.publish(b"empty", b"m")
            ended.wait(0.01)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        done = warren(
            "top", "--port", node.port, "--sort", "in", "--interval", 0.5, "--count", 2, "--rows", 1
        )
    finally:
        ended.set()
        publisher.join()
    assert (done.returncode, done.stderr) == (0, "") and "\x1b" not in done.stdout
    titles, first, again, second = [line.split() for line in done.stdout.splitlines()]
    assert titles == again == list(TITLES)
    for row in (first, second):
        assert row[:2] == ["empty", "default"]
        rate = row[titles.index("in/s") + 1]
        assert float(rate) > 0


def test_top_is_a_live_table_in_a_terminal_until_an_interrupt(node: NodeThread) -> None:
    channel = node.peer().open().channel()
    channel.declare(b"[bold]odd")
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "warrenmq", "top", "--port", str(node.port)]
    with (
        os.fdopen(screen, "rb", 0) as shown,
        subprocess.Popen(
            [*command, "--interval", "0.1"],
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        ) as process,
    ):
        os.close(terminal)
        seen = b""
        while seen.count(b"[bold]odd") < 2:
            seen += shown.read(4096)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):
            # The terminal is gone with the process.
            while shown.read(4096):
                pass
        assert process.wait(60) == 0
    assert b"Traceback" not in seen


def test_publishers_that_an_alarm_blocks_are_counted(node: NodeThread) -> None:
    channel = node.peer().open().channel()
    broker = node.node.broker
    node.call(lambda: broker.set_disk_free_limit(1 << 60, 0.0, broker.alarms.disk_limit_bytes))
    channel.publish(b"empty", b"m")
    eventually(
        lambda: warren_json("status", "--port", node.port)["blocked"] == 1,
        "the publisher is blocked",
    )
    text = warren("status", "--port", node.port).stdout
    assert "alarms: disk; 1 connections that publish are blocked\n" in text
    assert "a slow disk stopped publishers 0 times\n" in text


def test_status(node: NodeThread) -> None:
    found = warren_json("status", "--port", node.port)
    assert found["version"] == __version__ and found["node"].startswith("warren@")
    assert found["alarms"] == [] and found["memory_used_bytes"] > 1_000_000
    assert found["disk_free_bytes"] > 0 and found["connections"] == 1
    (vhost,) = found["vhosts"]
    assert (vhost["vhost"], vhost["queues"], vhost["debt_bytes"], vhost["lost"]) == ("/", 3, 0, 0)
    assert (
        LARGE
        < vhost["persistent"]["valid_bytes"]
        < vhost["persistent"]["total_bytes"]
        < LARGE + 200
    )
    assert (
        vhost["journal"]["files"] > 0
        and vhost["journal"]["bytes"] > vhost["journal"]["live_bytes"] > 0
    )
    assert vhost["checkpoints"] > 0 and vhost["generation"] > 0
    text = warren("status", "--port", node.port).stdout
    assert "alarms: none\n" in text
    assert "vhost '/': 3 queues; " in text and "debt 0 B\n" in text
    assert "0 damaged records, 0 lost messages\n" in text


class OlderNode(threading.Thread):
    """Answers the login of one client with `LoggedIn`, and its second request with `reply`."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.replies: list[bytes | bytearray] = [
            encode_frame(LoggedIn("0.9", PROTOCOL_VERSION)),
            reply,
        ]

    def run(self) -> None:
        client, _ = self.listener.accept()
        with self.listener, client, client.makefile("rb") as requests:
            requests.read(len(PROTOCOL_HEADER))
            for reply in self.replies:
                requests.read(int.from_bytes(requests.read(LENGTH_BYTES), "big"))
                client.sendall(reply)


def test_an_older_node_has_no_figures_of_writes(node: NodeThread) -> None:
    """Figures that a node does not know are left out, and null in JSON."""
    with AdminClient(NodeAddress(f"amqp://127.0.0.1:{node.port}")) as client:
        status = client.request(DescribeNode(), NodeStatus)
    reply = msgspec.msgpack.decode(encode_frame(status)[LENGTH_BYTES:])
    del reply["blocked"]
    for name in ("logs", "writes"):
        del reply["vhosts"][0][name]
    payload = msgspec.msgpack.encode(reply)
    frame = len(payload).to_bytes(LENGTH_BYTES, "big") + payload
    older = OlderNode(frame)
    older.start()
    done = warren("status", "--port", older.port)
    assert (done.returncode, done.stderr) == (0, "")
    assert "vhost '/': 3 queues; " in done.stdout and "0 lost messages\n" in done.stdout
    assert "amplification" not in done.stdout and "logs of contents" not in done.stdout
    older = OlderNode(frame)
    older.start()
    (vhost,) = warren_json("status", "--port", older.port)["vhosts"]
    assert vhost["logs"] is None and vhost["writes"] is None
    text = warren("status", "--port", node.port).stdout
    assert "write amplification " in text and "logs of contents " in text


def test_dead_letters_and_delayed_messages_are_counted(node: NodeThread) -> None:
    channel = node.peer().open().channel()
    dead = table(x__dead__letter__exchange="", x__dead__letter__routing__key="orders")
    channel.declare(b"dying", durable=True, arguments=dead)
    channel.exchange(
        b"later", b"x-delayed-message", True, arguments=table(x__delayed__type="fanout")
    )
    channel.confirm_select()
    for _ in range(3):
        channel.publish(b"dying", b"bad", PERSISTENT)
    waiting = Properties(delivery_mode=2, headers=table(**{"x-delay": 3_600_000}))
    channel.publish(b"", b"wait", waiting.encode(), b"later")
    channel.confirms(4)
    for tag in (1, 2):
        channel.get(b"dying")
        channel.reject(tag, requeue=False)
    channel.declare(b"dying", durable=True, arguments=dead)
    found = warren_json("status", "--port", node.port)
    (vhost,) = found["vhosts"]
    assert (vhost["dead_letters"], vhost["delayed"]) == ({"rejected": 2}, 1)
    text = warren("status", "--port", node.port).stdout
    assert "  2 dead letters: 2 rejected\n  1 delayed messages\n" in text


def test_the_node_of_this_machine_is_found_by_its_data_directory(
    node: NodeThread, tmp_path: Path
) -> None:
    """As `warrenctl` finds it: without a user, wherever the node listens."""
    data = {"WARREN_DATA_DIR": str(node.node.config.data_dir)}
    done = warren("queues", "--sort", "name", environment=data)
    assert (done.returncode, done.stderr) == (0, "") and "archive" in done.stdout
    done = warren("queues", "--user", "nobody", "--password", "x", environment=data)
    assert done.returncode == 2 and "login of user 'nobody' was refused" in done.stderr
    done = warren("status", environment={"WARREN_DATA_DIR": str(tmp_path / "none")})
    assert f"no node runs on {tmp_path / 'none'}" in done.stderr


@pytest.mark.parametrize("command", ["status", "queues"])
def test_one_line_and_status_2_when_nobody_answers(command: str) -> None:
    with nobody() as port:
        done = warren(command, "--host", "127.0.0.1", "--port", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"warren: no connection to 127.0.0.1:{port}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "queues"])
def test_a_refusal_is_one_line_too(node: NodeThread, command: str) -> None:
    done = warren(command, "--port", node.port, environment={"WARREN_PASSWORD": "wrong"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("warren: login of user 'guest' was refused")
    assert done.stderr.count("\n") == 1


def test_help_shows_the_options() -> None:
    for command in ("status", "queues"):
        text = warren(command, "--help").stdout
        for option in ("--host", "--port", "--user", "--password", "--vhost", "--json"):
            assert option in text
