"""docs/operations/troubleshooting.md: its own commands, on nodes in the state that they are for."""

import contextlib
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from simulator.failing_node import CLOCK_VARIABLE, VARIABLE
from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.trio import ClusterNodes, warrenctl
from tests.support.documented_commands import commands_of, run_commands, section_of
from tests.support.etcd import EtcdServer, require_etcd
from tests.support.stores.failing_disk import FailingDisk
from tests.support.stores.small_disk import mounted_disk

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "troubleshooting.md"
# Starts a node whose machine's clock is set by CLOCK_VARIABLE, in place of `python -m warrenmq`.
FAILING = ("sh", "-c", 'shift 3; exec "$0" -m simulator.failing_node "$@"', sys.executable)
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def lines_of(heading: str) -> list[str]:
    """The commands of a recipe, one a line."""
    return commands_of(section_of(PAGE.read_text(), heading)).splitlines()


def run(node: BrokerProcess, *lines: str) -> str:
    """Run lines of the page on the machine of `node`; returns what they print."""
    data = str(node.directory / "data")
    script = "\n".join(lines)
    return run_commands(script, node.directory, 100, WARREN_DATA_DIR=data, NO_COLOR="1")


def table_of(output: str, title: str) -> list[dict[str, str]]:
    """The rows of the table of `warrenctl` whose first column has this title."""
    lines = output.split(f"\n{title}\t")[1].splitlines()
    titles = [title, *lines[0].split("\t")]
    rows = takewhile(lambda row: len(row) == len(titles), (line.split("\t") for line in lines[1:]))
    return [dict(zip(titles, row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingDisk]:
    with pytest.MonkeyPatch.context() as patch:
        yield FailingDisk(tmp_path_factory.mktemp("disk"), patch)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, disk: FailingDisk) -> Iterator[BrokerProcess]:
    """The node of most recipes, whose disk may become slow."""
    node = BrokerProcess(tmp_path_factory.mktemp("node"))
    node.start()
    yield node
    disk.heal()
    node.kill()


def connect(node: BrokerProcess, user: str = "guest") -> pika.BlockingConnection:
    """A client; it ends when an alarm keeps it waiting for longer than any test does."""
    uri = node.uri.replace("guest:guest", f"{user}:{user}")
    return pika.BlockingConnection(
        pika.URLParameters(f"{uri}?blocked_connection_timeout={PATIENCE_S:.0f}")
    )


def expect_closed(connection: pika.BlockingConnection, reason: str) -> None:
    """Return when the node has closed the connection with this reason."""
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=reason):
        while True:
            connection.process_data_events(PATIENCE_S)


@pytest.fixture
def channel(node: BrokerProcess) -> Iterator[BlockingChannel]:
    """A channel in confirm mode, with the durable queue `orders`, which goes with the test."""
    connection = connect(node)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    yield channel
    if connection.is_open:
        connection.close()
    with contextlib.closing(connect(node)) as another:
        another.channel().queue_delete("orders")


def test_a_queue_eats_the_disk(node: BrokerProcess, channel: BlockingChannel) -> None:
    channel.queue_declare("small", durable=True)
    for queue, size in (("orders", 100_000), ("small", 10)):
        for _ in range(5):
            channel.basic_publish("", queue, bytes(size), PERSISTENT)
    looked = run(node, *lines_of("Look first"))
    assert "alarms: none" in looked and "user 'guest' authenticated" in looked
    sort, listing, purge, bound = lines_of("A queue eats the disk")
    found = run(node, sort, listing)
    assert found.splitlines()[1].split()[0] == "orders"
    row = next(row for row in table_of(found, "name") if row["name"] == "orders")
    assert (row["messages"], row["message_bytes_persistent"], row["consumers"]) == (
        "5", "500000", "0",
    )  # fmt: skip
    found = run(
        node, purge, bound, "warrenctl list_queues name policy", "warrenctl clear_policy bound"
    )
    assert channel.queue_declare("orders", passive=True).method.message_count == 0
    assert "orders\tbound\n" in found
    channel.queue_delete("small")


def test_nobody_acks_and_a_client_must_go(node: BrokerProcess, channel: BlockingChannel) -> None:
    for _ in range(5):
        channel.basic_publish("", "orders", b"m", PERSISTENT)
    stuck = connect(node)
    consumer = stuck.channel()
    consumer.basic_qos(prefetch_count=2)
    consumer.basic_consume("orders", lambda *_: None, consumer_tag="stuck")

    def oldest() -> float:
        rows = warrenctl(node.directory / "data", "-s", "list_consumers",
                         "oldest_unacknowledged_seconds").out  # fmt: skip
        return float(rows or 0)

    eventually(lambda: oldest() >= 1, "the delivery is a second old")
    found = run(node, *lines_of("Nobody acks"))
    (held,) = table_of(found, "queue_name")
    assert (held["consumer_tag"], held["prefetch_count"]) == ("stuck", "2")
    assert held["messages_unacknowledged"] == "2"
    assert float(held["oldest_unacknowledged_seconds"]) >= 1
    by_pid = {row["pid"]: row for row in table_of(found, "pid")}
    culprit = by_pid[held["channel_pid"]]
    assert (culprit["user"], culprit["messages_unacknowledged"]) == ("guest", "2")

    listing, close, *out = lines_of("A client must go")
    rows = table_of(run(node, listing), "pid")
    assert culprit["connection"] in [row["pid"] for row in rows]
    run(node, re.sub(r"'<\S+>'", shlex.quote(culprit["connection"]), close))
    expect_closed(stuck, "acks nothing since two")
    assert channel.queue_declare("orders", passive=True).method.message_count == 5

    run(node, "warrenctl add_user app app", "warrenctl set_permissions app '.*' '.*' '.*'")
    bad = connect(node, "app")
    *keep_out, let_in = out
    run(node, *keep_out)
    expect_closed(bad, "stopped by the operator")
    with pytest.raises(pika.exceptions.AMQPError):
        connect(node, "app")
    run(node, let_in)
    connect(node, "app").close()


def test_an_alarm_and_whom_it_blocks(node: BrokerProcess, channel: BlockingChannel) -> None:
    run(node, "warrenctl set_disk_free_limit 1000TB")
    eventually(lambda: "disk alarm: " in node.log_path.read_text(), "the alarm is on")
    with contextlib.closing(connect(node)) as publisher:
        publisher.channel().basic_publish("", "orders", b"m", PERSISTENT)
        eventually(lambda: "blocked" in states(node), "the publisher is blocked")
        found = run(node, *lines_of("Who blocks whom"))
        assert sorted(row["state"] for row in table_of(found, "pid")) == ["blocked", "blocking"]
        alarms, status, breakdown, disk_limit, memory_limit = lines_of("There is an alarm")
        found = run(node, alarms, status, breakdown)
        assert "Free disk space alarm" in found
        assert "alarms: disk; 1 connections that publish are blocked" in found
        assert "unfinished: " in found
        run(node, disk_limit, memory_limit)
        # The publish has waited, and goes on.
        eventually(
            lambda: channel.queue_declare("orders", passive=True).method.message_count == 1,
            "the message is in its queue",
        )
    run(node, "warrenctl set_vm_memory_high_watermark 0.4")


def states(node: BrokerProcess) -> list[str]:
    """The states of all connections."""
    return warrenctl(node.directory / "data", "-s", "list_connections", "state").out.split()


def test_confirms_are_slow(
    node: BrokerProcess, channel: BlockingChannel, disk: FailingDisk
) -> None:
    disk.slow("fdatasync", 0.11)
    ended = threading.Event()

    def publish() -> None:
        while not ended.is_set():
            channel.basic_publish("", "orders", b"m", PERSISTENT)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        (measure,) = lines_of("Confirms are slow")
        found = run(node, measure.replace("10", "2"))
    finally:
        ended.set()
        publisher.join()
        disk.heal()
    times = {}
    for line in found.splitlines():
        if row := re.match(r"  (\S.*?)  +(\d+)  +(\S+) (ms|s)  ", line):
            times[row[1]] = float(row[3]) * (1000 if row[4] == "s" else 1)
    assert times["write and sync of its records"] >= 110
    assert times["publish to confirm"] >= 110


def test_a_publisher_in_flow(
    node: BrokerProcess, channel: BlockingChannel, disk: FailingDisk
) -> None:
    """The disk takes nothing, so the node does not read who publishes too much."""
    disk.hang("fdatasync")
    flood = connect(node)
    writer = flood.channel()

    def publish() -> None:
        for _ in range(12_000):
            writer.basic_publish("", "orders", bytes(4000), PERSISTENT)

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    try:
        eventually(lambda: "flow" in states(node), "the publisher is in flow")
        found = run(node, *lines_of("Who blocks whom"))
        assert "flow" in [row["state"] for row in table_of(found, "pid")]
        assert re.search(r"a slow disk stopped publishers [1-9]", run(node, "warren status"))
    finally:
        disk.heal()
        publisher.join(60)
    flood.close()


def test_where_a_message_is(node: BrokerProcess, channel: BlockingChannel) -> None:
    trace, tracing, off = lines_of("Where is my message")
    channel.exchange_declare("shop", "topic", auto_delete=True)
    channel.queue_bind("orders", "shop", "order.#")
    printed: list[str] = []
    runner = threading.Thread(
        target=lambda: printed.append(run(node, trace + " --count 2")), daemon=True
    )
    runner.start()
    data = node.directory / "data"
    eventually(lambda: "true" in warrenctl(data, "list_vhosts", "tracing").out, "tracing is on")
    properties = pika.BasicProperties(message_id="order-17")
    channel.basic_publish("shop", "order.eu", b'{"order": 17}', properties)
    channel.basic_get("orders", auto_ack=True)
    runner.join(60)
    example = section_of(PAGE.read_text(), "Where is my message").split("```\n")[1]
    told, shown = [sorted(map(shape, text.splitlines())) for text in (printed[0], example)]
    assert told == shown
    assert "true" not in run(node, tracing)
    assert "true" in run(node, "warrenctl trace_on", tracing)
    assert "true" not in run(node, off, tracing)


def shape(line: str) -> str:
    """A line of a trace without time, address, size and name of the user."""
    line = re.sub(r"\d+:\d+:\d+\.\d+|\d+\.\d+\.\d+\.\d+:\d+|\d+ B|after \d+", "_", line)
    return re.sub(r"(by|to) (guest|app) ", r"\1 user ", line)


# -- nodes of their own ----------------------------------------------------------------------------


def test_the_disk_is_full(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "data") as small:
        node = BrokerProcess(tmp_path, "disk_free_limit.absolute=0")
        node.start()
        try:
            connection = connect(node)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            small.fill()
            with pytest.raises(pika.exceptions.NackError):
                # The reserve has room for the first ones.
                for _ in range(100):
                    channel.basic_publish("", "orders", bytes(1 << 20), PERSISTENT)
            found = run(node, *lines_of("The disk is full"))
            assert str(small.path) in found and "orders" in found
            assert "bytes of reserve are released" in node.log_path.read_text()
            small.free()
            eventually(lambda: is_confirmed(channel), "the node resumes by itself")
            connection.close()
        finally:
            node.kill()


def is_confirmed(channel: BlockingChannel) -> bool:
    """Publish to `orders`; whether the node confirms it."""
    try:
        channel.basic_publish("", "orders", b"m", PERSISTENT)
    except pika.exceptions.NackError:
        return False
    return True


def test_etcd_is_lost(tmp_path: Path) -> None:
    require_etcd()
    etcd = EtcdServer(tmp_path / "etcd")
    etcd.start()
    etcd.await_ready()
    try:
        with ClusterNodes(tmp_path, etcd.url, "n1") as cluster:
            (node,) = cluster.nodes
            check, status = lines_of("etcd is lost")
            run(node, check, status)
            connection = connect(node)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            etcd.kill()
            eventually(lambda: node.ctl("check_metadata_store").code == 69, "etcd is missed")
            assert "status 69" in run(node, f"{check} || echo status $?", status)
            assert is_confirmed(channel)
            etcd.start()
            eventually(lambda: node.ctl("check_metadata_store").code == 0, "etcd is back")
            connection.close()
    finally:
        etcd.kill()


def test_a_damaged_file_a_start_that_fails_and_a_clock(tmp_path: Path) -> None:
    """One directory, from accident to accident."""
    node = BrokerProcess(tmp_path / "node")
    data, saved = tmp_path / "node" / "data", tmp_path / "saved"

    def line(command: str) -> str:
        """A command of the page, for this directory; its exit status comes last."""
        command = command.replace("/var/lib/warren-saved", str(saved))
        return command.replace("/var/lib/warren", str(data)) + " 2>&1 || echo status $?"

    node.start()
    fill(node)
    assert node.stop() == 0
    (journal,) = [path for path in data.rglob("*.wal") if path.stat().st_size > 1000]
    content = bytearray(journal.read_bytes())
    place = content.index(b"body 7")
    content[place] ^= 1
    journal.write_bytes(content)
    shown, check, salvage = lines_of("A file is damaged")
    kept = run(node, line(check), line(salvage))
    assert "damaged" in kept and kept.count("status 1") == 2
    # A start finds the damage, and the other messages.
    node.start()
    assert "damaged" in run(node, shown)
    assert count_of(node) == 19

    server, config = lines_of("A node does not start")
    found = run(node, line(server))
    assert "is in use by another warren node" in found and "status 1" in found
    other = f"--listen {node.host}:{node.port} --management off"
    found = run(node, line(f"warren server --data-dir {tmp_path / 'other'} {other}"))
    assert "cannot listen on" in found and "status 1" in found
    (tmp_path / "warren.conf").write_text("vm_memory_high_watermark.relative = much\n")
    found = run(node, line(config.replace("/etc/warren", str(tmp_path))))
    assert "warren.conf:1" in found and "status 2" in found
    node.kill()
    (data / "node.sqlite").rename(tmp_path / "node.sqlite")
    found = run(node, line(server))
    assert "has lost its definitions" in found and "status 3" in found
    (tmp_path / "node.sqlite").rename(data / "node.sqlite")

    # The clock is a day ahead at this start.
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(PAGE.parents[2]), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.setenv(CLOCK_VARIABLE, "86400")
        patch.setenv(VARIABLE, "none=error")
        node.wrapper = FAILING
        node.start()
    (status,) = lines_of("The clock has jumped")
    assert re.search(r"clock: the node's is 864\d\d s ahead of", run(node, status))
    # Messages with a TTL of an hour are gone; this one will stay for a day longer.
    assert count_of(node) == 0
    fill(node)
    assert node.stop() == 0
    node.wrapper = ()
    node.start()
    assert "clock" not in run(node, status)
    assert count_of(node) == 20
    node.kill()


def fill(node: BrokerProcess) -> None:
    """Publish 20 persistent messages, which live for an hour."""
    with contextlib.closing(connect(node)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        properties = pika.BasicProperties(delivery_mode=2, expiration="3600000")
        for number in range(20):
            channel.basic_publish("", "orders", b"body %d" % number, properties)


def count_of(node: BrokerProcess) -> int:
    """The messages of `orders`; those at its head that have expired go first."""
    with contextlib.closing(connect(node)) as connection:
        channel = connection.channel()
        if channel.basic_get("orders")[0] is None:
            return 0
        count: int = channel.queue_declare("orders", passive=True).method.message_count
        return count + 1
