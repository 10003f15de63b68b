"""`python -m tests.pipeline.rabbitmq.large_import`: test import-rabbitmq with a large directory.

The real RabbitMQ gets numbered messages with confirms, whose bodies are embedded in its queue
index, kept in its message store, or both. After the last confirm it is killed, or stopped cleanly
with `--stopped`. `warren pipeline import-rabbitmq` makes a data directory of it with Spark, and a
node on that directory must deliver all messages, in order, byte for byte.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.brokers import RabbitmqBroker
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.process import BrokerProcess
from warrenmq.wire.methods import BasicAck
from warrenmq.wire.properties import Properties

# Queue of each of ten consecutive messages.
SHARES = ("embedded",) * 6 + ("mixed",) * 3 + ("stored",)
# Smallest size and span of the body sizes of each queue, in bytes.
SIZES = {"embedded": (8, 1000), "mixed": (8, 5000), "stored": (4096, 2000)}
# Highest number of unconfirmed messages.
WINDOW = 2000
PATIENCE_S = 60.0


def queue_of(number: int) -> str:
    """Return the queue of message `number`."""
    return SHARES[number % len(SHARES)]


def body_of(number: int) -> bytes:
    """Return the body of message `number`: unique, with a size in its queue's range."""
    least, span = SIZES[queue_of(number)]
    chance = number * 2654435761 % (1 << 32)
    word = b"%08x" % chance
    return (b"%08d" % number + word * ((least + span) // 8))[: least + chance % span]


def properties_of(number: int) -> Properties:
    """Return the properties of message `number`, whose message-id is the number."""
    return Properties(delivery_mode=2, message_id=b"%d" % number, priority=number % 10)


def publish(channel: ChannelPeer, count: int) -> None:
    """Publish `count` messages, and return when the last is confirmed."""
    channel.confirm_select()
    for queue in SIZES:
        channel.declare(queue.encode(), durable=True)
    waiting: set[int] = set()
    for number in range(count):
        raw = properties_of(number).encode()
        channel.publish(queue_of(number).encode(), body_of(number), raw)
        waiting.add(number + 1)
        while len(waiting) >= (WINDOW if number + 1 < count else 1):
            ack = channel.event(PATIENCE_S)
            assert isinstance(ack, BasicAck), ack
            # Confirms come in any order, because each queue confirms its own messages.
            if ack.multiple:
                waiting = {tag for tag in waiting if tag > ack.delivery_tag}
            else:
                waiting.remove(ack.delivery_tag)


def must_deliver(node: BrokerProcess, count: int) -> None:
    """Assert that every queue delivers its messages, in order, and no others."""
    for queue in SIZES:
        peer = Peer(SocketLink(node.host, node.port))
        peer.open()
        channel = peer.channel()
        channel.consume(queue.encode(), no_ack=True)
        numbers = [number for number in range(count) if queue_of(number) == queue]
        for number in numbers:
            message = channel.message()
            assert message.body == body_of(number), (queue, number, message.body[:40])
            assert message.raw == properties_of(number).encode(), (queue, number)
        peer.drop()
        peer = Peer(SocketLink(node.host, node.port))
        peer.open()
        assert peer.channel().drain(queue.encode()) == [], queue
        peer.drop()


def run(directory: Path, count: int, is_stopped: bool) -> None:
    """Run all steps, and print a line with the elapsed time for each."""
    started = time.monotonic()

    def tell(step: str) -> None:
        nonlocal started
        sys.stdout.write(f"{step:24} {time.monotonic() - started:7.1f} s\n")
        sys.stdout.flush()
        started = time.monotonic()

    broker = RabbitmqBroker(directory / "rabbitmq", set())
    try:
        broker.start()
        peer = Peer(SocketLink("127.0.0.1", broker.port), is_foreign=True)
        peer.open()
        started = time.monotonic()
        publish(peer.channel(), count)
        tell(f"{count} published")
        if not is_stopped:
            broker.kill()
    finally:
        broker.stop()
    tell("stopped" if is_stopped else "killed")
    (directory / "node").mkdir()
    command = [
        sys.executable,
        "-m",
        "warrenmq",
        "pipeline",
        "import-rabbitmq",
        "--json",
        "--progress",
        "none",
    ]
    done = subprocess.run(
        [*command, str(broker.node_directory()), str(directory / "node" / "data")],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    tell("imported")
    result = json.loads(done.stdout)
    assert (result["messages"], result["lost"], result["damage"]) == (count, 0, []), result
    node = BrokerProcess(directory / "node")
    node.start()
    tell("node started")
    try:
        must_deliver(node, count)
    finally:
        node.kill()
    tell("all there, in order")


def main() -> None:
    """Parse the command line and run; keep the directory when a check fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N")
    parser.add_argument(
        "--stopped", action="store_true", help="RabbitMQ in good order, not by SIGKILL"
    )
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="large-import-", dir=arguments.directory))
    try:
        run(directory, arguments.messages, arguments.stopped)
    except AssertionError as error:
        sys.stdout.write(f"FAILED: {error}; the files are in {directory}\n")
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
