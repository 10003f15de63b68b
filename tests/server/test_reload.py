"""SIGHUP: what a running node takes from a changed configuration, and its words on the rest."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.process import BrokerProcess
from warrenmq.wire.encode import PROTOCOL_HEADER


class Reloaded:
    """A node with a configuration file, and its log in a file of JSON."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "warren.conf"
        self.log_file = directory / "log" / "warren.log"
        self.base = (
            f"log.dir = {self.log_file.parent}\nlog.file = {self.log_file.name}\n"
            f"log.file.formatter = json\npid_file = {directory / 'pid'}\n"
        )
        self.broker = BrokerProcess(directory)

    def configure(self, text: str) -> None:
        self.file.write_text(self.base + text)

    def reload(self, text: str) -> list[str]:
        """Change the file and send SIGHUP; returns the lines that the log has got by then."""
        self.configure(text)
        before = len(self.log())
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGHUP)
        eventually(
            lambda: any("reloaded" in line for line in self.log()[before:]),
            "a line about the reload",
        )
        # The node writes all lines of a reload in one turn, and answers a stranger in a later one.
        stranger = self.peer()
        stranger.send(b"strange\n")
        assert stranger.link.receive(PATIENCE_S) == PROTOCOL_HEADER
        stranger.drop()
        return self.log()[before:]

    def log(self) -> list[str]:
        lines = self.log_file.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event["msg"] for event in events if event["domain"] == "warren.config"]

    def peer(self) -> Peer:
        return Peer(SocketLink(self.broker.host, self.broker.port))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reloaded]:
    node = Reloaded(tmp_path)
    monkeypatch.setenv("WARREN_CONFIG_FILE", str(node.file))
    node.configure("heartbeat = 30\nmirroring_sync_batch_size = 1000\nreverse_dns_lookups = true\n")
    node.broker.start()
    yield node
    node.broker.kill()


def test_a_running_node_takes_what_can_change(node: Reloaded) -> None:
    assert node.log() == [
        "these keys are checked but wait for a later version of warren: mirroring_sync_batch_size",
        "these keys are accepted without effect: reverse_dns_lookups",
    ]
    assert node.broker.process is not None
    assert (node.broker.directory / "pid").read_text() == f"{node.broker.process.pid}\n"
    first = node.peer().open()
    assert node.reload(
        "heartbeat = 20\nframe_max = 8192\nconnection_max = 1\nconsumer_timeout = 5\nmemory_monitor_interval = 500\n"
        "default_pass = other\n"
    ) == [
        "configuration reloaded; changed: connection_max, frame_max, heartbeat, consumer_timeout",
        "changes that take effect with a restart only: memory_monitor_interval",
    ]
    # The one connection that may be there is there: the next one is closed without a word.
    second = node.peer()
    second.send(b"AMQP\x00\x00\x09\x01")
    assert second.frames_until_end() == []
    first.close()
    tune = node.peer().start()
    assert (tune.heartbeat, tune.frame_max) == (20, 8192)


def test_a_faulty_configuration_changes_nothing(node: Reloaded) -> None:
    assert node.reload("heartbeat = 20\nhartbeat = 3\nframe_max = 5\n") == [
        f"configuration not reloaded: {node.file}:6: unknown key 'hartbeat'; did you mean heartbeat?",
        f"configuration not reloaded: {node.file}:7: frame_max: 5 is not between 4096 and 2147483647",
    ]
    assert node.peer().start().heartbeat == 30
    # A log file that another program has renamed is opened anew under its name.
    node.log_file.rename(node.log_file.with_suffix(".1"))
    node.log_file.write_text("")
    assert node.reload("heartbeat = 10\n") == ["configuration reloaded; changed: heartbeat"]
    assert node.broker.stop() == 0
    assert not (node.broker.directory / "pid").exists()
