"""What a running node tells of its configuration: sources, what waits, and no secrets."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import AdminClient, LocalAddress
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.admin.protocol.configuration import (
    Configuration,
    ConfigurationKey,
    DescribeConfiguration,
    PendingValue,
)
from warrenmq.admin.protocol.control import (
    ControlStatus,
    DescribeControl,
    Done,
    SetDiskLimit,
    SetLogLevel,
    SetMemoryLimit,
)
from warrenmq.admin.protocol.watching import DescribeVariables, Variables

SECRETS = ("hunter2", "t0psecret", "a55word")
CONNECT = "reload, for new connections"


class Told:
    """A node with two configuration files, and what it tells of them."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "warren.conf"
        self.other = directory / "conf.d" / "own.conf"
        self.broker = BrokerProcess(directory)
        self.broker.settings = ("channel_max=7", "cluster.etcd.password=t0psecret")

    def configure(self, *lines: str) -> None:
        self.other.parent.mkdir(exist_ok=True)
        self.file.write_text("\n".join(("include conf.d/*.conf", *lines, "")))

    def reload(self) -> None:
        before = self.broker.log_path.read_text().count("reloaded")
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGHUP)
        eventually(
            lambda: self.broker.log_path.read_text().count("reloaded") > before, "the reload"
        )

    @property
    def client(self) -> AdminClient:
        return AdminClient(LocalAddress(read_control_file(self.broker.directory / "data")))

    def tell(self) -> Configuration:
        with self.client as client:
            return client.request(DescribeConfiguration(), Configuration)

    def keys(self) -> dict[str, ConfigurationKey]:
        return {each.key: each for each in self.tell().keys}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    node = Told(tmp_path)
    node.configure("heartbeat = 30", "default_pass = hunter2", "net_ticktime = 5")
    node.other.write_text("journal_file_size_limit = 1MiB\n")
    monkeypatch.setenv("WARREN_CONFIG_FILE", str(node.file))
    monkeypatch.setenv("WARREN_CONF__frame_max", "8192")
    monkeypatch.setenv(
        "WARREN_SERVER_ADDITIONAL_ERL_ARGS",
        """-rabbit default_pass '<<"a55word">>' -rabbit consumer_timeout 5""",
    )
    node.broker.start()
    yield node
    node.broker.stop()


def in_force(key: ConfigurationKey) -> tuple[str, str, str, bool]:
    return key.value, key.source, key.effect, key.is_changed


def test_each_value_has_its_source(node: Told) -> None:
    told = node.tell()
    keys = {each.key: each for each in told.keys}
    assert told.files == [str(node.file), str(node.other)] and told.faults == []
    assert in_force(keys["heartbeat"]) == ("30", f"{node.file}:2", CONNECT, True)
    assert in_force(keys["journal_file_size_limit"]) == (
        "1048576", f"{node.other}:1", "restart", True,
    )  # fmt: skip
    assert in_force(keys["channel_max"]) == ("7", "--set", CONNECT, True)
    assert in_force(keys["frame_max"]) == ("8192", "WARREN_CONF__frame_max", CONNECT, True)
    assert in_force(keys["data_dir"])[1] == "--data-dir"
    assert in_force(keys["connection_max"]) == ("infinity", "default", "reload", False)
    assert in_force(keys["net_ticktime"]) == (
        "5", f"{node.file}:4", "no effect in warren", True,
    )  # fmt: skip
    sections = [each.section for each in told.keys]
    assert (keys["heartbeat"].section, sections[0], sections[-1]) == (
        "Connections", "The node", "The file",
    )  # fmt: skip
    assert not any(each.pending for each in told.keys)


def test_no_secret_leaves_the_node(node: Told) -> None:
    url = "http://user:hunter2@127.0.0.1:1"
    node.configure("default_pass = a55word", f"definitions.https.url = {url}", "a55word")
    told = node.tell()
    keys = {each.key: each for each in told.keys}
    assert told.faults == [f"{node.file}:4: expected KEY = VALUE"]
    node.configure("default_pass = hunter2", f"definitions.https.url = {url}")
    node.reload()
    changed = node.keys()
    assert changed["definitions.https.url"].value == "(hidden)"
    for name in ("default_pass", "cluster.etcd.password"):
        assert keys[name].value == changed[name].value == "(hidden)"
    assert keys["cluster.secret"].value == keys["ssl_options.password"].value == ""
    with node.client as client:
        variables = client.request(DescribeVariables(), Variables)
        status = client.request(DescribeControl(), ControlStatus)
    for secret in SECRETS:
        assert secret not in f"{told}{changed}{variables}{status}"


def test_a_changed_file_waits_for_a_reload_or_a_restart(node: Told) -> None:
    node.configure("heartbeat = 20", "management.cors.allow_origins.1 = *")
    node.other.write_text("\njournal_file_size_limit = 2MiB\n")
    place = f"{node.other}:2"
    keys = node.keys()
    assert in_force(keys["heartbeat"]) == ("30", f"{node.file}:2", CONNECT, True)
    assert keys["heartbeat"].pending == PendingValue("20", f"{node.file}:2", "reload")
    assert keys["journal_file_size_limit"].pending == PendingValue("2097152", place, "restart")
    assert {each.key for each in keys.values() if each.pending} == {
        "heartbeat", "journal_file_size_limit", "management.cors.allow_origins.1",
    }  # fmt: skip
    assert in_force(keys["management.cors.allow_origins.1"]) == ("", "default", "restart", False)
    node.reload()
    keys = node.keys()
    assert in_force(keys["heartbeat"]) == ("20", f"{node.file}:2", CONNECT, True)
    assert keys["heartbeat"].pending is None
    assert in_force(keys["journal_file_size_limit"]) == (
        "1048576", f"{node.other}:1", "restart", True,
    )  # fmt: skip
    assert keys["journal_file_size_limit"].pending == PendingValue("2097152", place, "restart")
    assert keys["management.cors.allow_origins.1"].pending == PendingValue(
        "*", f"{node.file}:3", "restart"
    )
    # A line that has moved only waits for nothing.
    node.configure()
    node.other.write_text("\n\njournal_file_size_limit = 1MiB\n")
    node.reload()
    keys = node.keys()
    assert in_force(keys["journal_file_size_limit"])[:2] == ("1048576", f"{node.other}:3")
    assert not any(each.pending for each in keys.values())
    assert in_force(keys["heartbeat"]) == ("60", "default", CONNECT, False)


def test_a_fault_in_a_file_is_told_before_a_restart_finds_it(node: Told) -> None:
    node.configure("heartbeat = x", "hartbeat = 3")
    told = node.tell()
    assert told.faults == [
        f"{node.file}:2: heartbeat: expected an integer, got 'x'",
        f"{node.file}:3: unknown key 'hartbeat'; did you mean heartbeat?",
    ]
    assert {each.key: each.value for each in told.keys}["heartbeat"] == "30"


def test_limits_and_levels_that_commands_have_set(node: Told) -> None:
    assert node.keys()["vm_memory_high_watermark.relative"].value == "0.4"
    with node.client as client:
        client.request(SetMemoryLimit(absolute=123_456_789), Done)
        client.request(SetDiskLimit(absolute=1 << 60), Done)
        client.request(SetLogLevel(level="debug"), Done)
    keys = node.keys()
    assert in_force(keys["vm_memory_high_watermark.absolute"]) == (
        "123456789", "runtime", "reload", True,
    )  # fmt: skip
    assert keys["vm_memory_high_watermark.absolute"].pending == PendingValue(
        "", "default", "restart"
    )
    assert keys["vm_memory_high_watermark.relative"].value == ""
    assert keys["vm_memory_high_watermark.relative"].pending == PendingValue(
        "0.4", "default", "restart"
    )
    assert in_force(keys["disk_free_limit.absolute"])[:2] == (str(1 << 60), "runtime")
    assert keys["disk_free_limit.absolute"].pending == PendingValue(
        "50000000", "default", "restart"
    )
    assert in_force(keys["log.console.level"])[:2] == ("debug", "runtime")
    assert keys["log.console.level"].pending == PendingValue("info", "default", "reload")
    # A reload opens the log anew, and leaves the limits as they are.
    node.reload()
    keys = node.keys()
    assert in_force(keys["log.console.level"])[:2] == ("info", "default")
    assert in_force(keys["vm_memory_high_watermark.absolute"])[:2] == ("123456789", "runtime")
    with node.client as client:
        client.request(SetMemoryLimit(relative=0.4), Done)
        client.request(SetDiskLimit(absolute=50_000_000), Done)
    assert not any(each.pending for each in node.keys().values())
