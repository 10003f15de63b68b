"""`warren trace`: prints what it is asked for, and leaves a vhost as it was, however it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.awaiting import eventually
from tests.support.command_line import warren
from warrenmq.admin.client.client import NodeAddress
from warrenmq.admin.protocol.control import Done, List, Rows, SetTracing
from warrenmq.cli.trace.event import DELIVER, PUBLISH, TraceEvent, event_of
from warrenmq.cli.trace.filters import KeyPattern, TraceFilter
from warrenmq.cli.trace.firehose import Firehose, TraceError
from warrenmq.testing.vhost import WarrenVhost


class Trace:
    """A run of `warren trace` that has begun."""

    def __init__(self, vhost: WarrenVhost, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "warrenmq", "trace", "--uri", vhost.url, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NO_COLOR": "1"},
        )
        assert self.process.stderr is not None
        self.begun = self.process.stderr.readline()
        assert self.begun.startswith("warren: tracing vhost"), self.begun

    def event(self) -> dict[str, Any]:
        """The next event, with --json."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal, and wait for the end: exit status, and what is left of the output."""
        if number is not None:
            self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=60)
        assert "Traceback" not in errors, errors
        return self.process.returncode, output + errors


@pytest.fixture
def channel(warren_vhost: WarrenVhost) -> Iterator[BlockingChannel]:
    """A channel of the vhost, with a topic exchange and a queue bound to it."""
    connection = pika.BlockingConnection(pika.URLParameters(warren_vhost.url))
    channel = connection.channel()
    channel.exchange_declare("shop", "topic")
    channel.queue_declare("orders")
    channel.queue_bind("orders", "shop", "order.#")
    yield channel
    connection.close()


def is_tracing(vhost: WarrenVhost) -> bool:
    """Whether the vhost is traced."""
    rows = vhost.broker.admin.request(List(what="vhosts", columns=["name", "tracing"]), Rows).rows
    return (vhost.name, True) in map(tuple, rows)


def publish(channel: BlockingChannel, key: str, message_id: str, **headers: Any) -> None:
    """Publish to the exchange `shop`."""
    properties = pika.BasicProperties(message_id=message_id, headers=headers or None)
    channel.basic_publish("shop", key, b"body of " + message_id.encode(), properties)


def test_a_message_is_followed_and_tracing_ends(
    warren_vhost: WarrenVhost, channel: BlockingChannel
) -> None:
    """One line for its publish and one for its delivery; then the run ends by itself."""
    trace = Trace(warren_vhost, "--property", "message-id=o-2", "--count", "2", "--body", "4")
    assert is_tracing(warren_vhost)
    for number in (1, 2):
        publish(channel, "order.eu", f"o-{number}")
    publish(channel, "nowhere", "o-2\nand another line")
    for _ in range(2):
        channel.basic_get("orders", auto_ack=True)
    status, output = trace.end()
    assert status == 0
    published, delivered = output.splitlines()
    assert "publish  exchange 'shop' key 'order.eu' to 'orders'  by guest" in published
    assert "deliver  queue 'orders' key 'order.eu'  to guest" in delivered
    assert all(line.endswith("11 B  message_id 'o-2'  'body'") for line in (published, delivered))
    assert not is_tracing(warren_vhost)


def test_every_filter(warren_vhost: WarrenVhost, channel: BlockingChannel) -> None:
    """Two runs share the firehose; one of them asks the node for less."""
    channel.queue_declare("other")
    channel.queue_bind("other", "shop", "#")
    orders = TraceFilter(queue="orders")
    address = NodeAddress(warren_vhost.url)
    with (
        Firehose(address, address, TraceFilter().binding_keys()) as everything,
        Firehose(address, address, orders.binding_keys()) as narrow,
    ):
        everything.begin()
        narrow.begin()
        publish(channel, "order.eu.new", "a", shop=1)
        publish(channel, "order.eu", "b", shop=2)
        channel.basic_publish("", "other", b"\xff")
        for queue in ("orders", "other", "other", "other"):
            channel.basic_get(queue, auto_ack=True)
        events = [next_event(everything) for _ in range(7)]
        # The deliveries from the other queue do not come.
        assert [next_event(narrow).kind for _ in range(4)] == [PUBLISH] * 3 + [DELIVER]
        narrow.check_backlog()
    assert not is_tracing(warren_vhost)
    publishes = [["orders", "other"], ["orders", "other"], ["other"]]
    deliveries = [["orders"], ["other"], ["other"], ["other"]]
    assert [sorted(event.queues) for event in events] == publishes + deliveries
    chosen = [
        (TraceFilter(exchange=""), [2, 6]),
        (TraceFilter(key=KeyPattern("order.*.new")), [0, 3, 4]),
        (orders, [0, 1, 3]),
        (TraceFilter(headers={"shop": "2"}), [1, 5]),
        (TraceFilter(properties={"message_id": "a"}), [0, 3, 4]),
        (TraceFilter(kinds=(DELIVER,)), [3, 4, 5, 6]),
        (TraceFilter(user="guest"), list(range(7))),
        (TraceFilter(user="nobody"), []),
    ]
    for wanted, places in chosen:
        assert [place for place, event in enumerate(events) if wanted.takes(event)] == places
    shown = json.loads(events[6].json(100))
    assert (shown["payload"], shown["payload_encoding"]) == ("/w==", "base64")
    assert (shown["event"], shown["queues"], shown["body_bytes"]) == ("deliver", ["other"], 1)


def next_event(firehose: Firehose) -> TraceEvent:
    """The next copy that a firehose has."""
    while (copy := firehose.next(1.0)) is None:
        pass
    return event_of(copy, datetime.now(UTC))


def test_however_it_ends(warren_vhost: WarrenVhost, channel: BlockingChannel) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        trace = Trace(warren_vhost)
        assert trace.end(number)[0] == 1
        assert not is_tracing(warren_vhost)
    # Somebody reads one line only.
    trace = Trace(warren_vhost, "--json")
    assert trace.process.stdout is not None
    publish(channel, "order.eu", "a")
    trace.event()
    trace.process.stdout.close()
    eventually(lambda: _published(channel, trace), "the end of a run that nobody reads")
    assert trace.process.wait(60) == 0
    assert not is_tracing(warren_vhost)
    assert trace.process.stderr is not None
    trace.process.stderr.close()
    # SIGKILL leaves tracing on, and no queue.
    trace = Trace(warren_vhost)
    trace.end(signal.SIGKILL)
    assert is_tracing(warren_vhost)
    admin = warren_vhost.broker.admin
    request = List(what="queues", columns=["name"], vhost=warren_vhost.name)
    eventually(lambda: admin.request(request, Rows).rows == [["orders"]], "the queue is gone")
    # Tracing that is on before stays on.
    trace = Trace(warren_vhost)
    assert "which was on and stays on" in trace.begun
    trace.end(signal.SIGTERM)
    assert is_tracing(warren_vhost)
    admin.request(SetTracing(vhost=warren_vhost.name, is_on=False), Done)


def _published(channel: BlockingChannel, trace: Trace) -> bool:
    publish(channel, "order.eu", "b")
    return trace.process.poll() is not None


def test_copies_that_nobody_reads(warren_vhost: WarrenVhost, channel: BlockingChannel) -> None:
    """The queue stays small, and the run finds that copies are lost."""
    address = NodeAddress(warren_vhost.url)
    with Firehose(address, address, TraceFilter().binding_keys()) as firehose:
        firehose.begin()
        for _ in range(80):
            channel.basic_publish("shop", "nowhere", bytes(1 << 20))
        channel.queue_declare("orders", passive=True)
        with pytest.raises(TraceError, match=r"faster than they are read: \d+ wait, [1-9]\d* are"):
            firehose.check_backlog()
    assert not is_tracing(warren_vhost)


def test_what_is_refused(warren_vhost: WarrenVhost) -> None:
    wrong = warren("trace", "--uri", warren_vhost.url, "--property", "message_id")
    assert (wrong.returncode, wrong.stderr.strip()) == (
        2,
        "warren: --property message_id: write NAME=VALUE",
    )
    stranger = warren("trace", "--uri", warren_vhost.url.replace("guest:guest", "guest:wrong"))
    assert stranger.returncode == 2
    assert len(stranger.stderr.splitlines()) == 1
