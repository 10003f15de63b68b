"""The pytest plugin as users see it: each test here is a run of pytest in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually

pytestmark = pytest.mark.interop

PLUGIN = "warrenmq.testing.pytest_plugin"

HELPERS = """
import os, time
from pathlib import Path
import pika, pytest
from warrenmq.admin.protocol.control import List, Rows

def channel(url):
    return pika.BlockingConnection(pika.URLParameters(url)).channel()

def keep_a_message(url):
    own = channel(url)
    own.queue_declare("orders", durable=True)
    own.confirm_delivery()
    own.basic_publish("", "orders", b"order 1", pika.BasicProperties(delivery_mode=2))

def queues(broker, vhost="/"):
    return broker.admin.request(List(what="queues", columns=["name"], vhost=vhost), Rows).rows
"""

FIXTURES = """
@pytest.mark.parametrize("number", range(2))
def test_each_test_has_an_empty_broker(warren_broker, number):
    assert queues(warren_broker) == []
    keep_a_message(warren_broker.url)
    assert queues(warren_broker) == [["orders"]]

def test_a_broker_keeps_its_address_and_its_messages(warren_broker):
    broker = warren_broker
    assert broker.url == f"amqp://guest:guest@{broker.host}:{broker.port}/%2F"
    keep_a_message(broker.url)
    for again in (broker.restart, broker.kill, broker.stop):
        again()
        if broker.pid is None:
            with pytest.raises(OSError):
                __import__("socket").create_connection((broker.host, broker.port))
            broker.start()
        assert channel(broker.url).queue_declare("orders", passive=True).method.message_count == 1
    assert (broker.data_dir / "node.sqlite").exists()
    assert "test-" in broker.node and "started TCP listener" in broker.log()

@pytest.mark.warren(settings={"channel_max": 5, "log.console.level": "debug"})
class TestMarks:
    @pytest.mark.warren(settings={"channel_max": 7}, definitions={
        "vhosts": [{"name": "shop"}],
        "users": [{"name": "guest", "password_hash": "", "tags": ""}, {"name": "ann", "password": "x", "tags": ""}],
        "queues": [{"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}}],
    })
    def test_a_mark_configures_the_broker(self, warren_broker):
        own = channel(warren_broker.vhost_url("shop"))
        assert own.queue_declare("orders", passive=True).method.message_count == 0
        assert own.connection._impl.params.channel_max == 7
        assert "[DEBUG]" in warren_broker.log()

    def test_a_vhost_takes_no_mark(self, warren_vhost):
        assert False, "not reached"

@pytest.mark.parametrize("number", range(2))
def test_each_test_has_an_empty_vhost(warren_vhost, warren_broker_session, number):
    assert warren_vhost.broker is warren_broker_session
    names = {name for (name,) in warren_vhost.broker.admin.request(List(what="vhosts", columns=["name"]), Rows).rows}
    assert names == {"/", warren_vhost.name}
    keep_a_message(warren_vhost.url)
    assert queues(warren_vhost.broker, warren_vhost.name) == [["orders"]]

@pytest.mark.warren(settings={"no_such_key": 1})
def test_a_broker_that_does_not_start_says_why(warren_broker):
    assert False, "not reached"
"""

CONFIGURED = """
def test_the_ini_file_configures_each_broker(warren_broker, warren_broker_session):
    for broker in (warren_broker, warren_broker_session):
        assert queues(broker) == [["from file"]]
        assert channel(broker.url).connection._impl.params.channel_max == 9
"""

INI = """
[pytest]
addopts = --strict-markers --strict-config
warren_settings =
    channel_max = 9
    heartbeat = 0
warren_definitions = definitions.json
"""

DEFINITIONS = """
{"queues": [{"name": "from file", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}}]}
"""


class InnerRun:
    """A run of pytest in `directory`, with the plugin and no other of this environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = directory / "base"
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self.environment = {
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in paths if path),
        }

    def command(self, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider"]
        return [*command, "-rA", f"--basetemp={self.files}", *arguments]

    def run(self, test: str, *arguments: str) -> str:
        """What pytest prints."""
        (self.directory / "test_inner.py").write_text(HELPERS + test)
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        return done.stdout + done.stderr

    def begin(self, test: str) -> "subprocess.Popen[str]":
        """Start pytest."""
        (self.directory / "test_inner.py").write_text(HELPERS + test)
        return subprocess.Popen(
            self.command(), cwd=self.directory, env=self.environment, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def brokers(self) -> list[Path]:
        """The directories of brokers that are there."""
        return sorted(self.files.rglob("broker.log"))


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[InnerRun]:
    yield InnerRun(tmp_path)


def outcomes(output: str) -> dict[str, set[str]]:
    """Names of tests by outcome."""
    found: dict[str, set[str]] = {}
    for outcome, name in re.findall(
        r"^(PASSED|FAILED|ERROR) \S+::(\w+)[\[ \n]", output, re.MULTILINE
    ):
        found.setdefault(outcome, set()).add(name)
    return found


def test_the_ini_file_configures_the_brokers(inner: InnerRun) -> None:
    (inner.directory / "pytest.ini").write_text(INI)
    (inner.directory / "definitions.json").write_text(DEFINITIONS)
    output = inner.run(CONFIGURED)
    assert outcomes(output) == {"PASSED": {"test_the_ini_file_configures_each_broker"}}, output
    assert inner.brokers() == []


def test_each_test_has_its_own_broker_or_vhost(inner: InnerRun) -> None:
    output = inner.run(FIXTURES)
    assert outcomes(output) == {
        "PASSED": {
            "test_each_test_has_an_empty_broker",
            "test_a_broker_keeps_its_address_and_its_messages",
            "test_a_mark_configures_the_broker",
            "test_each_test_has_an_empty_vhost",
        },
        "ERROR": {"test_a_vhost_takes_no_mark", "test_a_broker_that_does_not_start_says_why"},
    }, output
    assert "unknown key 'no_such_key'" in output
    assert "use the fixture warren_broker" in output
    assert inner.brokers() == []


def test_a_failure_shows_what_the_brokers_logged_meanwhile(inner: InnerRun) -> None:
    output = inner.run(
        """
def test_before(warren_vhost):
    keep_a_message(warren_vhost.url)

def test_fails(warren_broker, warren_vhost):
    channel(warren_vhost.url).queue_declare("orders", passive=True)

def test_without_a_broker():
    assert False
"""
    )
    logs = re.findall(r"-+ log of (\w+) -+\n((?:(?!--|__).*\n)+)", output)
    assert sorted(name for name, _ in logs) == ["warren_broker", "warren_broker_session"], output
    log = dict(logs)
    assert "started TCP listener" in log["warren_broker"]
    assert "no queue 'orders'" in log["warren_broker_session"]
    # The earlier test's lines are left out.
    assert log["warren_broker_session"].count("is created") == 1
    assert "started TCP listener" not in log["warren_broker_session"]


def test_files_are_kept_on_demand_and_workers_share_no_port(inner: InnerRun) -> None:
    test = """
@pytest.mark.parametrize("number", range(6))
def test_keeps(warren_broker, number):
    keep_a_message(warren_broker.url)
"""
    output = inner.run(test, "--warren-keep", "-p", "xdist", "-n", "3")
    assert len(re.findall("^PASSED", output, re.MULTILINE)) == 6, output
    printed = re.findall(r"^\S+::test_keeps\[\d\]: (/\S+)$", output, re.MULTILINE)
    assert sorted(printed) == [str(log.parent) for log in inner.brokers()]
    assert len(printed) == 6
    for log in inner.brokers():
        assert (log.parent / "data/node.sqlite").exists()
        assert "stopping" in log.read_text()


WAITING = """
def test_waits(warren_broker, warren_broker_session):
    Path("pids.new").write_text(f"{warren_broker.pid} {warren_broker_session.pid}")
    Path("pids.new").rename("pids")
    time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_broker_outlives_pytest(inner: InnerRun, number: signal.Signals) -> None:
    process = inner.begin(WAITING)
    try:
        eventually((inner.directory / "pids").exists, "the inner test runs")
        pids = (inner.directory / "pids").read_text().split()
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    if number == signal.SIGINT:
        assert process.returncode == pytest.ExitCode.INTERRUPTED, output
        assert inner.brokers() == []
    eventually(lambda: not any(is_running(pid) for pid in pids), "the brokers end")


def is_running(pid: str) -> bool:
    """Whether there is a process that is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_without_brokers_loads_nothing_of_them() -> None:
    script = (
        "import sys, pytest, pluggy\n"
        "before = set(sys.modules)\n"
        f"import {PLUGIN}\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["warrenmq", "warrenmq.testing", PLUGIN]
