"""`warren store`, `warren backup` and `warren restore`: exit status, lines and JSON."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren, warren_json
from tests.support.kills.ledger import Confirms, connect

pytestmark = pytest.mark.kill


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running node with three messages in the queue `q`, and the empty queue `none`."""
    process = BrokerProcess(tmp_path / "node")
    process.start()
    peer = connect(process)
    channel = peer.channel()
    channel.declare(b"q", durable=True)
    channel.declare(b"none", durable=True)
    confirms = Confirms(channel)
    for size in (10, 100, 50_000):
        confirms.publish(b"q", bytes(size), PERSISTENT, b"", lambda: None)
    confirms.drain()
    peer.close()
    yield process
    process.kill()


@pytest.fixture
def data(node: BrokerProcess) -> Path:
    """The data directory of the node, which is stopped."""
    node.stop()
    return node.directory / "data"


def journal(data: Path) -> Path:
    return max(
        (data / "msg_stores/vhosts/1/journal").iterdir(), key=lambda path: path.stat().st_size
    )


def test_help_names_the_commands() -> None:
    text = warren("--help").stdout
    assert all(command in text for command in ("store", "backup", "restore"))
    text = warren("store", "--help").stdout
    assert all(command in text for command in ("check", "salvage", "report"))
    for command, flags in (
        (("store", "check"), ("--json",)),
        (("store", "salvage"), ("--to", "--json")),
        (("backup",), ("--data-dir", "--host", "--port", "--user", "--password", "--json")),
        (("restore",), ("--data-dir", "--accept-problems", "--json")),
    ):
        done = warren(*command, "--help")
        assert done.returncode == 0 and all(flag in done.stdout for flag in flags), done.stdout


def test_a_directory_in_use(node: BrokerProcess, tmp_path: Path) -> None:
    data = node.directory / "data"
    for command in (
        ("store", "check", data),
        ("store", "report", data),
        ("store", "salvage", data, "--to", tmp_path / "new"),
        ("backup", tmp_path / "backup", "--data-dir", data),
    ):
        done = warren(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            done.stderr
            == f"warren: {data} is in use by a running node; stop it, or look at a backup\n"
        )
    assert not (tmp_path / "new").exists() and not (tmp_path / "backup").exists()


def test_a_node_cannot_start_while_its_directory_is_looked_at(data: Path) -> None:
    from warrenmq.offline.data_directory import locked

    with locked(data):
        done = warren("server", "--data-dir", data, "--listen", "127.0.0.1:0")
    assert done.returncode == 1 and "in use" in done.stderr


@pytest.mark.parametrize("command", ["check", "report"])
def test_what_is_no_data_directory(tmp_path: Path, command: str) -> None:
    done = warren("store", command, tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"warren: {tmp_path} is not a data directory")
    assert warren("store", command).returncode == 2


def test_check(data: Path) -> None:
    done = warren("store", "check", data)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 queues, 3 messages, 1 large contents; ")
    assert done.stdout.endswith("no problems\n")
    found = warren_json("store", "check", data)
    assert found["clean"] and found["problems"] == []
    assert (found["queues"], found["messages"], found["contents"]) == (2, 3, 1)

    (data / "msg_stores/vhosts/1/journal/strange").write_text("strange")
    done = warren("store", "check", data)
    assert done.returncode == 1
    assert "not_ours: vhost '/': not a usable file of this vhost: strange\n" in done.stdout
    assert done.stdout.endswith("problems: 1 not_ours\n")
    found = warren_json("store", "check", data, status=1)
    assert not found["clean"] and found["problem_counts"] == {"not_ours": 1}


def test_report(data: Path) -> None:
    done = warren("store", "report", data)
    assert done.returncode == 0 and "vhost '/' (id 1)" in done.stdout
    assert "published: write amplification 1." in done.stdout
    (vhost,) = warren_json("store", "report", data)["vhosts"]
    assert vhost["name"] == "/" and vhost["messages"] == 3
    rows = {queue["name"]: queue for queue in vhost["queues"]}
    assert rows["none"]["messages"] == 0
    assert rows["q"]["messages"] == 3 and rows["q"]["large_messages"] == 1
    assert 50_110 <= rows["q"]["bytes"] <= 50_200
    assert rows["q"]["oldest_ms"] > 1_600_000_000_000
    assert [row["messages"] for row in vhost["body_sizes"] if row["messages"]] == [1, 1, 1]
    assert vhost["contents"]["live"] > 50_000
    writes = vhost["writes"]
    assert 50_110 <= writes["published_bytes"] <= 50_200
    assert writes["amplification"] == writes["total_bytes"] / writes["published_bytes"] > 1
    for kind in ("journal", "index", "contents"):
        assert vhost[kind]["size"] == vhost[kind]["live"] + vhost[kind]["garbage"]


def test_salvage(data: Path, tmp_path: Path) -> None:
    found = warren_json("store", "salvage", data, "--to", tmp_path / "new")
    assert found["messages"] == 3 and found["lost"] == 0 and found["losses"] == []
    assert warren_json("store", "check", tmp_path / "new")["messages"] == 3
    done = warren("store", "salvage", data, "--to", tmp_path / "new")
    assert done.returncode == 2 and "is not empty" in done.stderr
    path = journal(data)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    done = warren("store", "salvage", data, "--to", tmp_path / "other")
    assert done.returncode == 1 and done.stdout.startswith(
        "lost: vhost '/': what was in journal file "
    )


def test_backup_and_restore_of_a_stopped_node(data: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    found = warren_json("backup", backup, "--data-dir", data)
    manifest = json.loads((backup / "manifest.json").read_text())
    assert found == {"backup": str(backup), "bytes": sum(row["size"] for row in manifest["files"])}
    assert warren("backup", backup, "--data-dir", data).returncode == 2
    assert warren_json("store", "check", backup)["messages"] == 3
    assert warren_json("store", "report", backup)["vhosts"][0]["messages"] == 3
    done = warren("restore", backup, "--data-dir", tmp_path / "restored")
    assert done.returncode == 0 and done.stdout.startswith(
        f"{tmp_path / 'restored'} is restored from "
    )
    found = warren_json("restore", backup, "--data-dir", tmp_path / "again")
    assert found["check"]["clean"] and found["data_dir"] == str(tmp_path / "again")


def test_backup_of_a_running_node(node: BrokerProcess, tmp_path: Path) -> None:
    where = ("--host", node.host, "--port", node.port)
    found = warren_json("backup", tmp_path / "backup", *where)
    assert found["bytes"] > 50_000
    # The password may come from the environment.
    done = warren("backup", tmp_path / "other", *where, environment={"WARREN_PASSWORD": "wrong"})
    assert done.returncode == 2 and "refused" in done.stderr
    assert "wrong" not in done.stderr.replace("wrong name or password", "")
    assert warren_json("store", "check", tmp_path / "backup")["messages"] == 3
