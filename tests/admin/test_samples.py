"""Nodes keep samples of their figures for those who ask, for a time, and within bounds."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.admin.protocol.changes import COUNTERS, LEVELS, NODE, QUEUE
from warrenmq.admin.protocol.control import AddUser, Done, SetPermissions
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup
from warrenmq.admin.protocol.samples import (
    GROUP,
    KEPT_MS,
    ReadSamples,
    Sample,
    SampledObject,
    Samples,
)
from warrenmq.admin.sampling import ring
from warrenmq.admin.sampling.ring import SampleRing
from warrenmq.broker.broker import Broker
from warrenmq.vocabulary.error_codes import ACCESS_REFUSED, UNREACHABLE

EVER = 1 << 60
INTERVAL_MS = 200


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    running = NodeThread(
        tmp_path_factory.mktemp("node"), f"collect_statistics_interval={INTERVAL_MS}"
    )
    yield running
    running.stop()


@pytest.fixture
def client(node: NodeThread) -> Iterator[AdminClient]:
    with AdminClient(NodeAddress(node.uri)) as client:
        yield client


def fresh(client: AdminClient, after_ms: int = 0) -> list[Sample]:
    """All samples after a time, the last of them taken now."""
    told = client.request(ReadSamples(after_ms=after_ms, upto_ms=EVER, is_fresh=True), Samples)
    assert not told.has_more
    return told.samples


def only(sample: Sample, kind: str, name: str) -> SampledObject:
    (found,) = [each for each in sample.objects if (each.kind, each.name) == (kind, name)]
    return found


def counter(found: SampledObject, name: str) -> tuple[int, int | None]:
    """The value of a counter, and its increase."""
    place = COUNTERS[found.kind].index(name)
    return found.counters[place], None if found.increases is None else found.increases[place]


def level(found: SampledObject, name: str) -> int:
    return found.levels[LEVELS[found.kind].index(name)]


def test_increases_add_up_over_samples(node: NodeThread, client: AdminClient) -> None:
    """Samples come at the interval, too, and each says which one was before it."""
    before = fresh(client)[-1]
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for number in range(30):
            channel.basic_publish("", "q", bytes(number))
            if number % 10 == 9:
                fresh(client)
        for _ in range(4):
            channel.basic_get("q", auto_ack=True)
        client.request(OpenGroup("readers", [b"q"]), GroupOpened)
        after = fresh(client, before.at_ms)
    assert [each.before_ms for each in after] == [
        before.at_ms,
        *[each.at_ms for each in after[:-1]],
    ]
    assert all(each.at_ms > each.before_ms for each in after)
    of_queue = [only(each, QUEUE, "q") for each in after if len(each.objects) > len(before.objects)]
    assert sum([counter(each, "publish")[1] or 0 for each in of_queue]) == 30
    last = of_queue[-1]
    assert counter(last, "publish")[0] == 30
    assert sum([counter(each, "get_no_ack")[1] or 0 for each in of_queue]) == 4
    assert (level(last, "messages_ready"), level(last, "message_bytes")) == (26, sum(range(4, 30)))
    of_node = [only(each, NODE, node.node.broker.settings.node_name) for each in after]
    assert sum([counter(each, "publish")[1] or 0 for each in of_node]) == 30
    (group,) = [each for each in after[-1].objects if each.kind == GROUP]
    assert (group.vhost, group.name, group.group) == ("/", "q", "readers")
    assert group.levels[:2] == [0, 26] and group.levels[2] >= 0


def test_a_long_answer_comes_in_parts(
    node: NodeThread, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part may end in the midst of a sample; together they are what one answer would be."""
    fresh(client)
    whole = fresh(client)
    monkeypatch.setattr(ring, "OBJECTS_MAX", 2)
    upto_ms = whole[-1].at_ms
    request = ReadSamples(upto_ms=upto_ms)
    parts: list[tuple[int, SampledObject]] = []
    while True:
        told = client.request(request, Samples)
        assert sum([len(each.objects) for each in told.samples]) <= 2
        parts += [(each.at_ms, found) for each in told.samples for found in each.objects]
        if not told.has_more:
            break
        request = ReadSamples(after_ms=told.next_after_ms, upto_ms=upto_ms, skip=told.next_skip)
    assert parts == [(each.at_ms, found) for each in whole for found in each.objects]


def test_who_is_no_monitor_gets_no_samples(node: NodeThread, client: AdminClient) -> None:
    client.request(AddUser(name="low", password="low"), Done)
    rights = SetPermissions(vhost="/", user="low", configure="", write="", read="")
    client.request(rights, Done)
    with (
        AdminClient(NodeAddress(node.uri.replace("guest:guest", "low:low"))) as low,
        pytest.raises(AdminRefusedError) as error,
    ):
        low.request(ReadSamples(), Samples)
    text = "the operation is for users with the tag monitoring"
    assert (error.value.code, error.value.text) == (ACCESS_REFUSED, text)
    with pytest.raises(AdminRefusedError) as error:
        client.request(ReadSamples("elsewhere"), Samples)
    assert error.value.code == UNREACHABLE


class HandClock:
    """A clock that the test moves; it runs what is due."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.due: list[tuple[float, Callable[[], object]]] = []
        self.soon: deque[Callable[[], object]] = deque()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Any:
        self.due.append((self.ms + delay_s * 1000, callback))

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self.soon.append(callback)

    def now_ms(self) -> int:
        return self.ms

    def advance(self, ms: int) -> None:
        self.ms += ms
        due = [callback for at_ms, callback in self.due if at_ms <= self.ms]
        self.due = [each for each in self.due if each[0] > self.ms]
        for callback in due:
            callback()
        while self.soon:
            self.soon.popleft()()


class Process:
    sample_interval_ms = 1000

    def open_files(self) -> int:
        return 1

    def open_sockets(self) -> int:
        return 1


def read(samples: SampleRing, clock: HandClock) -> Samples:
    found: list[Samples] = []
    samples.read(ReadSamples(upto_ms=EVER), [], Process(), clock, found.append)
    return found[0]


def test_samples_are_kept_for_a_time_and_in_bounds(
    node: NodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for an hour: the node stops, and forgets all."""
    broker: Broker = node.node.broker
    clock = HandClock()
    samples = SampleRing(broker)
    assert len(read(samples, clock).samples) == 1
    for _ in range(5):
        clock.advance(1000)
    told = read(samples, clock)
    assert [each.at_ms for each in told.samples] == [1_000_000 + 1000 * place for place in range(6)]
    monkeypatch.setattr(ring, "SAMPLES_BYTES_MAX", 0)
    clock.advance(1000)
    assert [each.at_ms for each in read(samples, clock).samples] == [1_006_000]
    clock.advance(KEPT_MS)
    assert clock.due
    clock.advance(KEPT_MS + 2000)
    assert not clock.due
    (sample,) = read(samples, clock).samples
    assert sample.before_ms == 0 and sample.objects[0].increases is None
