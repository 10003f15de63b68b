"""`warren perf` on a `warren server`: messages are confirmed and arrive, returns are counted."""

import pytest

from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import PerfOptions
from warrenmq.perf.progress import Interval
from warrenmq.perf.run import run


def ignore(interval: Interval) -> None:
    pass


@pytest.mark.parametrize("processes", [1, 2])
def test_persistent_messages_are_confirmed_and_arrive(broker_uri: str, processes: int) -> None:
    options = PerfOptions(
        uri=broker_uri,
        producers=2,
        consumers=2,
        queue_pattern="flow-%d",
        queue_pattern_to=2,
        size=5000,
        flags=["persistent"],
        confirm=50,
        qos=20,
        multi_ack_every=7,
        pmessages=500,
        processes=processes,
    )
    summary = run(options, ignore)
    assert (summary.published, summary.confirmed, summary.received) == (1000, 1000, 1000)
    assert summary.is_drained
    assert summary.latency_us["min"] > 0
    assert summary.confirm_latency_us["max"] > 0


def test_a_body_of_several_frames(broker_uri: str) -> None:
    summary = run(PerfOptions(uri=broker_uri, size=300_000, pmessages=20, autoack=True), ignore)
    assert summary.received == 20


def test_a_backlog_is_published_and_drained(broker_uri: str) -> None:
    backlog = PerfOptions(uri=broker_uri, queue="backlog", auto_delete=False, size=0)
    backlog.consumers, backlog.pmessages = 0, 300
    assert run(backlog, ignore).published == 300
    backlog.producers, backlog.consumers, backlog.pmessages = 0, 1, 0
    backlog.cmessages, backlog.multi_ack_every = 300, 100
    assert run(backlog, ignore).received == 300


def test_what_goes_nowhere_is_returned(broker_uri: str) -> None:
    options = PerfOptions(
        uri=broker_uri,
        consumers=0,
        flags=["mandatory"],
        confirm=10,
        pmessages=100,
        routing_key="nowhere",
    )
    summary = run(options, ignore)
    assert (summary.confirmed, summary.returned) == (100, 100)


def test_an_exchange_is_declared_and_bound(broker_uri: str) -> None:
    options = PerfOptions(
        uri=broker_uri,
        exchange="perf-topic",
        exchange_type="topic",
        routing_key="a.b",
        queue="bound",
        pmessages=50,
    )
    assert run(options, ignore).received == 50


def test_a_refusal_ends_the_run_with_the_reply(broker_uri: str) -> None:
    with pytest.raises(PerfError, match="404 NOT_FOUND - no queue 'nonesuch'"):
        run(PerfOptions(uri=broker_uri, queue="nonesuch", predeclared=True), ignore)
