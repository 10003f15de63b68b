"""The store's files after every kind of end start again: real processes, files and kernels.
Cases T6, T12, T30, T31, T42, T46, T47, T72 and T73 of docs/guarantees.md; T13 is in `test_restart`.
"""

import os
import shutil
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.kill.test_restart import content, filled, journal_of, lost_of
from tests.support.brokers.amqp_frames import (
    BODY,
    PERSISTENT,
    frame,
    header_frame,
    method_frame,
    table,
)
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import MIB, WatchedBroker
from tests.support.kills.ledger import Confirms, Ledger, body_of, connect, number_of
from tests.support.stores.failing_disk import FailingDisk
from tests.support.stores.stopped_node import await_rest
from warrenmq.wire.methods import BasicPublish

pytestmark = pytest.mark.kill

LAZY = table(x__queue__mode="lazy")
SMALL_FILES = (
    "journal_file_size_limit=1MiB",
    "msg_store_file_size_limit=64KiB",
    "memory_monitor_interval=100",
)
# Every queue pages all its messages.
PAGING = (*SMALL_FILES, "vm_memory_high_watermark_paging_ratio=0")
# Body sizes on both sides of the threshold for the index.
SIZES = (0, 100, 1000, 4000, 5000, 20_000)


def store_of(node: BrokerProcess) -> Path:
    """The directory of vhost /'s store."""
    return journal_of(node).parent


def flood(channel: ChannelPeer, queue: bytes, size: int, count: int) -> None:
    """Publish that many persistent messages of zeros at once and wait for their confirms."""
    channel.confirm_select()
    one = method_frame(channel.number, BasicPublish(b"", queue)) + header_frame(
        channel.number, size, PERSISTENT
    )
    if size:
        one += frame(BODY, channel.number, bytes(size))
    for at in range(0, count, 1000):
        channel.peer.send(one * min(1000, count - at))
    channel.confirms(count)
    channel.close()


def bodies_of_all_sizes(count: int) -> list[bytes]:
    """Bodies of all sizes, each with its number."""
    return [body_of(number, SIZES[number % len(SIZES)]) for number in range(count)]


def fill_three(node: BrokerProcess, bodies: list[bytes]) -> Peer:
    """Publish to the default queue q and the lazy queue z, through an exchange that feeds both."""
    peer = filled(node)
    channel = peer.channel()
    channel.declare(b"z", durable=True, arguments=LAZY)
    channel.exchange(b"x", b"fanout", durable=True)
    channel.bind(b"q", b"x")
    channel.bind(b"z", b"x")
    confirms = Confirms(channel)
    for body in bodies:
        confirms.publish(b"", body, PERSISTENT, b"x", lambda: None)
    confirms.drain()
    return peer


def bodies_in(node: BrokerProcess, queue: bytes) -> list[bytes]:
    return [body for body, _ in content(node, queue)]


# -- T6, T12, T30 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [(), PAGING])
def test_crash_clean_stop_clean_stop(node: BrokerProcess, settings: tuple[str, ...]) -> None:
    """T6: the contents are in all places, and some messages are unacked at each end."""
    node.settings = settings
    bodies = bodies_of_all_sizes(120)
    peer = fill_three(node, bodies)
    channel = peer.channel()
    for queue in (b"q", b"z"):
        assert [channel.get(queue).body for _ in range(30)] == bodies[:30]
    node.kill()
    for _ in range(3):
        node.start()
        assert bodies_in(node, b"q") == bodies
        assert bodies_in(node, b"z") == bodies
        assert node.stop() == 0
    assert lost_of(node) == []
    node.start()
    channel = connect(node).channel()
    assert channel.drain(b"q") == bodies
    node.kill()
    node.start()
    # Acks of `drain` may have been lost with the node; the other queue's references may not.
    assert bodies_in(node, b"z") == bodies


def copy_running(source: Path, target: Path) -> None:
    """Copy file after file while they change; files that are deleted meanwhile are left out."""
    for parent, directories, names in os.walk(source):
        here = target / Path(parent).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        directories.sort()
        for name in sorted(names):
            try:
                shutil.copyfile(Path(parent) / name, here / name)
            except FileNotFoundError:
                continue


class Publishing(threading.Thread):
    """Publishes to q and z in turn until the node is gone; `ledger.confirmed` has the numbers."""

    def __init__(self, node: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.node = node
        self.ledger = Ledger((b"q", b"z"))

    def run(self) -> None:
        ledger = self.ledger
        try:
            channel = connect(self.node).channel()
            confirms = Confirms(channel)
            while True:
                for _ in range(20):
                    number = ledger.number()
                    queue = b"q" if number % 2 else b"z"
                    body = body_of(number, SIZES[number % len(SIZES)])
                    note = partial(ledger.confirmed[queue].add, number)
                    confirms.publish(queue, body, PERSISTENT, b"", note)
                confirms.drain()
        except (EOFError, OSError):
            return


@pytest.mark.parametrize("settings", [(), PAGING])
def test_an_image_of_a_running_node(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """T12: a copy whose files are of different moments starts and delivers published messages only.
    While no file is begun or deleted meanwhile, which the first settings ensure, everything
    confirmed before the copy is there.
    """
    node = BrokerProcess(tmp_path / "original", *settings)
    try:
        fill_three(node, [])
        publishing = Publishing(node)
        publishing.start()
        confirmed = publishing.ledger.confirmed
        deadline = time.monotonic() + 60
        while min(map(len, confirmed.values())) < 100:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        before = {queue: set(numbers) for queue, numbers in confirmed.items()}
        copy_running(node.directory / "data", tmp_path / "copy" / "data")
    finally:
        node.kill()
    publishing.join(20)
    copy = BrokerProcess(tmp_path / "copy", *settings)
    copy.start()
    for queue in (b"q", b"z"):
        numbers = [number_of(body) for body in bodies_in(copy, queue)]
        assert numbers == sorted(set(numbers))
        if not settings:
            assert before[queue]
            assert before[queue] <= set(numbers)
    peer = connect(copy)
    channel = peer.channel()
    channel.publish(b"q", b"service goes on")
    assert b"service goes on" in channel.drain(b"q")
    peer.close()
    assert copy.stop() == 0
    assert "Traceback" not in copy.log_path.read_text()


@pytest.mark.parametrize("kept", [20, 0.5, -1])
@pytest.mark.parametrize("names", [("checkpoint",), ("checkpoint", "checkpoint.previous")])
def test_a_truncated_checkpoint(node: BrokerProcess, kept: float, names: tuple[str, ...]) -> None:
    """T30: a cut checkpoint is replaced by the one before, or by the indexes."""
    node.settings = PAGING
    bodies = bodies_of_all_sizes(200)
    fill_three(node, bodies)
    # Two starts make two checkpoints: a node is not ready before it has written its own.
    for _ in range(2):
        node.kill()
        node.start()
        connect(node).close()
    await_rest(store_of(node))
    node.kill()
    for name in names:
        path = store_of(node) / name
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * kept)] if 0 < kept < 1 else data[: int(kept)])
    node.start()
    assert bodies_in(node, b"q") == bodies
    assert bodies_in(node, b"z") == bodies
    assert node.stop() == 0
    assert "checkpoint" in node.log_path.read_text()


# -- T31: permissions, file systems ----------------------------------------------------------------


def without_privileges() -> tuple[str, ...]:
    """A wrapper command under which permissions apply to root too."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed, and root may read everything")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.mark.parametrize(
    "what",
    [
        "journal/*.wal",
        "checkpoint",
        "msg_store_persistent",
        "queues",
        "store_id",
        "../../../node.sqlite",
    ],
)
def test_what_may_not_be_read_stops_the_start(node: BrokerProcess, what: str) -> None:
    """T31: an unreadable file is not lost, so the start ends, with one line about the cause."""
    bodies = bodies_of_all_sizes(50)
    fill_three(node, bodies)
    node.kill()
    node.wrapper = without_privileges()
    paths = list(store_of(node).glob(what)) if "*" in what else [(store_of(node) / what).resolve()]
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(0)
    with pytest.raises(RuntimeError, match="cannot start"):
        node.start()
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode)
    node.start()
    assert bodies_in(node, b"q") == bodies
    assert bodies_in(node, b"z") == bodies
    assert lost_of(node) == []


@pytest.mark.parametrize("what", ["queues/*/*.idx", "msg_store_persistent/*.rdq"])
def test_what_may_not_be_read_later_is_not_thrown_away(node: BrokerProcess, what: str) -> None:
    """T31: files that a start does not read stay, and nothing is lost for ever in the meantime."""
    node.settings = PAGING
    bodies = bodies_of_all_sizes(50)
    fill_three(node, bodies)
    time.sleep(0.3)
    assert node.stop() == 0
    node.wrapper = without_privileges()
    paths = list(store_of(node).glob(what))
    assert paths
    for path in paths:
        path.chmod(0)
    try:
        node.start()
        channel = connect(node).channel()
        channel.consume(b"z")
        for _ in range(20):
            channel.peer.read(0.05)
        assert node.stop() == 0
    except RuntimeError as error:
        assert "cannot start" in str(error)
    for path in paths:
        path.chmod(0o640)
    node.start()
    assert bodies_in(node, b"z") == bodies
    assert bodies_in(node, b"q") == bodies


def test_a_file_system_that_is_read_only(node: BrokerProcess) -> None:
    """T31: the start ends with one line and has changed nothing."""
    bodies = bodies_of_all_sizes(50)
    fill_three(node, bodies)
    node.kill()
    data = node.directory / "data"
    script = f"mount --bind {data} {data} && mount -o remount,ro,bind {data} && exec " + '"$@"'
    wrapper = ("unshare", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    node.wrapper = wrapper
    with pytest.raises(RuntimeError, match=r"cannot start: .*[Rr]ead-only"):
        node.start()
    assert before == {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    node.wrapper = ()
    node.start()
    assert bodies_in(node, b"q") == bodies


# -- T42, T46, T47: too few, slow or stuck -------------------------------------------------------

DESCRIPTORS = 140
MANY = 300


@pytest.mark.slow
def test_more_queues_than_descriptors(node: BrokerProcess) -> None:
    """T42: far more queues than descriptors survive a kill and a stop without an error."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed")
    node.wrapper = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    node.settings = PAGING
    node.start()
    channel = connect(node).channel()
    names = [b"q%d" % number for number in range(MANY)]
    for number, name in enumerate(names):
        channel.declare(name, durable=True, arguments=LAZY if number % 2 else b"")
    for kind in ("killed", "stopped"):
        confirms = Confirms(channel)
        for size in (10, 5000):
            for name in names:
                confirms.publish(name, body_of(size, size), PERSISTENT, b"", lambda: None)
            confirms.drain()
        time.sleep(0.5)
        if kind == "killed":
            node.kill()
        else:
            assert node.stop() == 0
        node.start()
        channel = connect(node).channel()
        for name in names:
            assert [number_of(body) for body in channel.drain(name)] == [10, 5000], name
    log = node.log_path.read_text()
    assert "Too many open files" not in log
    assert node.errors() == []


def test_a_slow_disk_under_a_lazy_queue(
    node: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T46: confirms come in batches, and a consumer of messages paged meanwhile waits for none."""
    disk = FailingDisk(tmp_path, monkeypatch)
    node.settings = SMALL_FILES
    peer = fill_three(node, [])
    channel = peer.channel()
    channel.confirm_select()
    consumer = connect(node).channel()
    consumer.qos(200)
    consumer.consume(b"z")
    # The disk confirms nothing before the consumer has every message.
    disk.hang("fdatasync")
    bodies = bodies_of_all_sizes(600)
    for body in bodies:
        channel.publish(b"z", body, PERSISTENT)
    for body in bodies:
        message = consumer.message()
        assert message.body == body
        consumer.ack(message.deliver.delivery_tag)
    channel.quiet()
    disk.heal()
    assert len(channel.confirms(len(bodies))) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("reads", [False, True])
def test_memory_while_nothing_is_acked(node: BrokerProcess, reads: bool) -> None:
    """T47: a consumer without prefetch stops reading a long lazy queue, or acks nothing of it."""
    count, size = 30_000, 2000
    # The paging threshold is 10 MiB.
    node.settings = ("memory_monitor_interval=100", "vm_memory_high_watermark.absolute=1GiB")
    node.settings += ("vm_memory_high_watermark_paging_ratio=0.01",)
    node.start()
    channel = connect(node).channel()
    channel.declare(b"z", durable=True, arguments=LAZY)
    flood(channel, b"z", size, count)
    broker = WatchedBroker(node)
    before = broker.rss()
    consumer = connect(node).channel()
    consumer.consume(b"z")
    if reads:
        for _ in range(count):
            assert consumer.message().deliver.delivery_tag
            consumer.events.clear()
            consumer.log.clear()
    peak = 0
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        peak = max(peak, broker.rss())
        time.sleep(0.05)
    # Contents would take 80 MiB. An entry for each message may stay, which is large when
    # interpreted.
    assert peak - before < 45 * MIB, f"{(peak - before) / MIB:.0f} MiB"
    broker.check_service()
    consumer.peer.drop()
    deadline = time.monotonic() + 60
    other = connect(node).channel()
    while other.count(b"z") != count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


# -- T72, T73: what a start costs ------------------------------------------------------------------


def bytes_read(node: BrokerProcess) -> int:
    """The number of bytes that the node has read so far, from anywhere."""
    assert node.process is not None
    fields = dict(
        line.split(": ") for line in Path(f"/proc/{node.process.pid}/io").read_text().splitlines()
    )
    return int(fields["rchar"])


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_reads_no_bodies_and_takes_no_memory_for_them(
    node: BrokerProcess, is_clean: bool
) -> None:
    """T72, T73: with 60 MiB in lazy queues, a start reads only the journal's last part."""
    node.settings = ("journal_file_size_limit=1MiB",)
    node.start()
    empty = WatchedBroker(node)
    empty_rss, empty_read = empty.rss(), bytes_read(node)
    channel = connect(node).channel()
    channel.declare(b"small", durable=True, arguments=LAZY)
    channel.declare(b"large", durable=True, arguments=LAZY)
    flood(connect(node).channel(), b"small", 1000, 30_000)
    flood(connect(node).channel(), b"large", 20_000, 1500)
    await_rest(store_of(node))
    if is_clean:
        assert node.stop() == 0
    else:
        node.kill()
    node.start()
    read, rss = bytes_read(node) - empty_read, WatchedBroker(node).rss() - empty_rss
    lines = [
        line for line in node.log_path.read_text().splitlines() if "journal files behind" in line
    ]
    channel = connect(node).channel()
    assert (channel.count(b"small"), channel.count(b"large")) == (30_000, 1500)
    assert channel.get(b"small").body == bytes(1000)
    assert channel.get(b"large").body == bytes(20_000)
    # A journal file is read to the end of its allocation ahead.
    assert read < (12 if is_clean else 24) * MIB, lines[-1]
    assert rss < 16 * MIB, f"{rss / MIB:.1f} MiB"
