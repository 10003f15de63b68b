"""Several nodes behind one port: real processes, real clients, SIGKILL."""

import fcntl
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from librt.strings import BytesWriter
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.trio import Printed, warrenctl
from warrenmq.admin.client.control_file import ControlFileError, read_control_file
from warrenmq.wire.encode import PROTOCOL_HEADER, write_method_frame
from warrenmq.wire.frames import NEED_DATA, FrameBuffer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    METHOD_NAMES,
    BasicGet,
    BasicQos,
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    decode_method,
)

COUNT = 2
QUEUES = [f"q{worker}" for worker in range(COUNT)]
WORKERS = ("warren", "warren-1")
MESSAGES = [b"m%d" % number for number in range(50)]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Workers(BrokerProcess):
    """A supervisor with two workers."""

    def __init__(self, directory: Path, *settings: str) -> None:
        super().__init__(directory, f"workers={COUNT}", *settings)

    def data_of(self, worker: int) -> Path:
        """The data directory of a worker."""
        data = self.directory / "data"
        return data / "workers" / str(worker) if worker else data

    def ctl(self, worker: int, *arguments: str) -> Printed:
        """Run `warrenctl` on a worker."""
        return warrenctl(self.data_of(worker), *arguments)

    def pids(self) -> list[int]:
        """The processes of the workers, 0 for one that is not ready."""
        found = []
        for worker in range(COUNT):
            try:
                pid = read_control_file(self.data_of(worker)).pid
            except ControlFileError:
                pid = 0
            found.append(pid if pid and _runs(pid) else 0)
        return found

    @contextmanager
    def client(self) -> Iterator[BlockingChannel]:
        """A channel in confirm mode of a new client, accepted by any of the workers."""
        connection = pika.BlockingConnection(pika.URLParameters(self.uri))
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            yield channel
        finally:
            connection.close()

    def node_of(self, channel: BlockingChannel) -> str:
        """The worker that serves a client."""
        port = channel.connection._impl._transport._sock.getsockname()[1]
        rows = self.ctl(0, "-s", "list_connections", "peer_port", "pid").rows()
        (pid,) = [pid for peer, pid in rows if peer == str(port)]
        return _node(pid)

    def homes(self) -> dict[str, str]:
        """The worker that has each queue."""
        rows = self.ctl(0, "-s", "list_queues", "name", "pid").rows()
        return {name: _node(pid) for name, pid in rows}


def _node(pid: str) -> str:
    return pid.partition("@")[0].strip("<")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def publish_all(channel: BlockingChannel, queue: str) -> None:
    """Publish MESSAGES, each confirmed."""
    for message in MESSAGES:
        channel.basic_publish("", queue, message, PERSISTENT, mandatory=True)


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """The messages of a queue, which are taken from it."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def names_of_replies(broker: Workers, queue: str) -> list[str]:
    """All replies to a client that sends everything at once, before it reads anything."""
    out = BytesWriter()
    start_ok = ConnectionStartOk(mechanism=b"PLAIN", response=b"\0guest\0guest", locale=b"en_US")
    sent: list[tuple[int, Method]] = [
        (0, start_ok),
        (0, ConnectionTuneOk(2047, 131072, 0)),
        (0, ConnectionOpen(b"/")),
        (1, ChannelOpen()),
        (1, BasicQos(prefetch_count=1)),
        (1, BasicGet(queue.encode())),
    ]
    for channel, method in sent:
        write_method_frame(out, channel, method)
    frames = FrameBuffer(131072)
    names: list[str] = []
    with socket.create_connection((broker.host, broker.port)) as client:
        client.sendall(PROTOCOL_HEADER + out.getvalue())
        while not names or not names[-1].startswith("basic.get"):
            data = client.recv(65536)
            assert data, names
            frames.feed(data)
            while frames.next_frame() != NEED_DATA:
                reply = decode_method(frames.data, frames.start, frames.end)
                names.append(METHOD_NAMES[reply.id])
    return names


def assert_holds_what_it_has(broker: Workers) -> None:
    """A second supervisor gets neither the directory nor the port."""
    same_directory = Workers(broker.directory)
    same_port = Workers(broker.directory / "other")
    same_port.port = broker.port
    for second, fault in (
        (same_directory, "is in use by the workers of another supervisor"),
        (same_port, "another program uses it, perhaps another node"),
    ):
        assert second.refused() == 1
        assert fault in second.log_path.read_text().splitlines()[-1]


@contextmanager
def no_more_files(broker: Workers) -> Iterator[None]:
    """The supervisor can open no file meanwhile."""
    assert broker.process is not None
    files = (broker.process.pid, resource.RLIMIT_NOFILE)
    before = resource.prlimit(*files)
    resource.prlimit(*files, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(*files, before)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Workers]:
    broker = Workers(tmp_path)
    yield broker
    pids = broker.pids()
    broker.kill()
    # They stop when their supervisor has ended.
    eventually(lambda: not any(pid and _runs(pid) for pid in pids), "no worker is left")


def test_workers_are_one_broker_that_survives_their_deaths(broker: Workers, tmp_path: Path) -> None:
    """A lone node becomes one of them, with its queue; no confirmed message is lost."""
    alone = BrokerProcess(tmp_path)
    alone.port = broker.port
    alone.start()
    with pika.BlockingConnection(pika.URLParameters(alone.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("old", durable=True)
        publish_all(channel, "old")
    assert alone.stop() == 0

    broker.start()
    killed = broker.pids()
    for queue in QUEUES:
        with broker.client() as channel:
            channel.queue_declare(queue, durable=True)
            publish_all(channel, queue)
    homes = broker.homes()
    assert set(homes.values()) == set(WORKERS)
    here, there = ({home: queue for queue, home in homes.items()}[node] for node in WORKERS)
    with broker.client() as survivor:
        assert bodies(survivor, here) == MESSAGES
        assert_holds_what_it_has(broker)
        with no_more_files(broker):
            os.kill(killed[1], signal.SIGKILL)
            fault = "worker 1 cannot be started: Too many open files; it is tried again"
            eventually(lambda: fault in broker.log_path.read_text(), "it cannot be started")
        eventually(lambda: 0 not in broker.pids() and broker.pids() != killed, "worker 1 is back")
        publish_all(survivor, here)
    assert broker.pids()[0] == killed[0]
    assert broker.ctl(0, "await_online_nodes", str(COUNT)).code == 0
    assert broker.homes() == homes
    with broker.client() as channel:
        assert bodies(channel, there) == MESSAGES
        publish_all(channel, there)

    # Without their supervisor they stop; a new one finds everything.
    assert broker.process is not None
    orphans = broker.pids()
    broker.process.kill()
    broker.process.wait()
    eventually(lambda: not any(_runs(pid) for pid in orphans), "the orphans have stopped")
    broker.kill()
    broker.start()
    workers = broker.pids()
    for queue in ("old", *QUEUES):
        with broker.client() as channel:
            assert bodies(channel, queue) == MESSAGES
    broker.process.send_signal(signal.SIGHUP)
    eventually(
        lambda: broker.log_path.read_text().count("configuration reloaded") == COUNT,
        "both workers read the configuration again",
    )
    assert broker.stop() == 0
    assert not any(_runs(pid) for pid in workers)

    # The data of a worker cannot be left out, and the definitions are those of all.
    alone.process = None
    for settings, fault in (
        ((), "belongs to workers, which share its definitions: start it with --workers 2"),
        (("workers=1",), "worker 1 has data in"),
    ):
        alone.settings = settings
        assert alone.refused() == 1
        assert fault in alone.log_path.read_text().splitlines()[-1]


def test_clients_are_served_by_the_worker_that_has_their_queue(
    broker: Workers, tmp_path: Path
) -> None:
    """Whoever accepts them, and whatever they do first; they notice nothing.

    systemd hears of one service.
    """
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    broker.wrapper = ("env", f"NOTIFY_SOCKET={tmp_path / 'notify'}")
    broker.start()
    assert 0 not in broker.pids()
    # It hears of it after the ready line.
    manager.settimeout(PATIENCE_S)
    assert manager.recv(4096).startswith(b"READY=1")
    with broker.client() as channel:
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.exchange_declare("by-key", "direct")
            channel.queue_bind(queue, "by-key", queue)
    homes = broker.homes()
    assert set(homes.values()) == set(WORKERS)
    for _ in range(4):
        for queue in QUEUES:
            with broker.client() as publisher, broker.client() as consumer:
                # The default exchange, another one, and a declaration lead to the queue.
                publisher.basic_publish("by-key", queue, b"1", PERSISTENT, mandatory=True)
                publisher.basic_publish("", queue, b"2", PERSISTENT, mandatory=True)
                consumer.basic_qos(prefetch_count=1)
                consumer.exchange_declare("by-key", "direct")
                consumer.queue_declare(queue, durable=True)
                found = []
                # The queue that was declared last.
                for method, _, body in consumer.consume("", inactivity_timeout=None):
                    found.append(body)
                    consumer.basic_ack(method.delivery_tag)
                    if len(found) == 2:
                        break
                consumer.cancel()
                assert found == [b"1", b"2"]
                nodes = {broker.node_of(publisher), broker.node_of(consumer)}
                assert nodes == {homes[queue]}
    # No worker believes that the client has gone.
    assert "[WARNING]" not in broker.log_path.read_text()
    for queue in QUEUES:
        assert names_of_replies(broker, queue) == [
            *("connection.start", "connection.tune", "connection.open-ok"),
            *("channel.open-ok", "basic.qos-ok", "basic.get-empty"),
        ]
    assert broker.errors() == []
    assert broker.stop() == 0
    assert manager.recv(4096).startswith(b"STOPPING=1")
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
    manager.close()


def test_worker_that_cannot_start_stops_all(broker: Workers) -> None:
    """Nothing is ready, nothing is left, and a line names the worker."""
    taken = broker.data_of(1)
    taken.mkdir(parents=True)
    with (taken / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert broker.refused() == 1
    lines = broker.log_path.read_text().splitlines()
    fault = "worker 1 cannot start: it has ended with status 1; all workers are stopped"
    assert any(fault in line for line in lines), lines
    assert lines[-1].endswith("all workers have ended")
    assert broker.pids() == [0, 0]


def test_wrong_numbers_of_workers_are_refused_in_one_line(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "workers=two")
    assert broker.refused() == 2
    assert broker.log_path.read_text() == (
        "warren: --set: workers: expected an integer, got 'two'\n"
    )
