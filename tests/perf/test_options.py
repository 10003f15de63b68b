"""A refused option gives an error that names it and the allowed values."""

import pytest

from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import PerfOptions, parse_arguments, parse_uri
from warrenmq.perf.processes import deal_agents


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("amqp://h", ("h", 5672, "guest", "guest", "/")),
        ("amqp://h/", ("h", 5672, "guest", "guest", "")),
        ("amqp://u:p@h:1234/%2F", ("h", 1234, "u", "p", "/")),
        ("amqp://u%40x:p%3A@[::1]:7/v%2Fw", ("::1", 7, "u@x", "p:", "v/w")),
    ],
)
def test_uris(uri: str, expected: tuple[str, int, str, str, str]) -> None:
    address = parse_uri(uri)
    assert (address.host, address.port, address.user, address.password, address.vhost) == expected


@pytest.mark.parametrize(
    "uri", ["", "h:5672", "http://h", "amqp://", "amqp://h:99999", "amqp://h:x"]
)
def test_bad_uris(uri: str) -> None:
    with pytest.raises(PerfError, match="--uri"):
        parse_uri(uri)


def test_arguments() -> None:
    assert parse_arguments("") == {}
    assert parse_arguments("x-max-length=10, x-queue-mode=lazy,a=-3,b=true,c=false,d=,e=1=2") == {
        "x-max-length": 10,
        "x-queue-mode": "lazy",
        "a": -3,
        "b": True,
        "c": False,
        "d": "",
        "e": "1=2",
    }


@pytest.mark.parametrize("text", ["x", "=1", "a=1,,b=2", ","])
def test_bad_arguments(text: str) -> None:
    with pytest.raises(PerfError, match="NAME=VALUE"):
        parse_arguments(text)


def test_the_defaults_can_run() -> None:
    PerfOptions().validate()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (PerfOptions(size=-1), "--size -1: expected at least 0"),
        (PerfOptions(qos=65536), "--qos 65536: expected at most 65535"),
        (PerfOptions(multi_ack_every=0), "--multi-ack-every 0: expected at least 1"),
        (PerfOptions(rate=float("nan")), "--rate nan: expected at least 0"),
        (PerfOptions(producers=0, consumers=0), "nothing to run"),
        (PerfOptions(flags=["durable"]), "expected one of persistent, mandatory"),
        (PerfOptions(autoack=True, multi_ack_every=10), "without meaning under --autoack"),
        (PerfOptions(qos=10, multi_ack_every=11), "no ack would ever be sent"),
        (PerfOptions(predeclared=True), "name the queue"),
        (PerfOptions(queue="q", queue_pattern="q-%d"), "exclude each other"),
        (PerfOptions(queue_pattern="q"), "expected one %d"),
        (PerfOptions(queue_pattern="q-%d-%d"), "expected one %d"),
        (
            PerfOptions(queue_pattern="q-%d", queue_pattern_from=2),
            "--queue-pattern-to 1: expected at least 2",
        ),
        (PerfOptions(processes=3), "more than producers and consumers together"),
    ],
)
def test_what_cannot_run_is_refused(options: PerfOptions, text: str) -> None:
    with pytest.raises(PerfError) as error:
        options.validate()
    assert text in str(error.value)


def test_queue_names() -> None:
    assert PerfOptions().queue_names() == [""]
    assert PerfOptions(queue="q").queue_names() == ["q"]
    pattern = PerfOptions(queue_pattern="q-%d", queue_pattern_from=2, queue_pattern_to=4)
    assert pattern.queue_names() == ["q-2", "q-3", "q-4"]


def test_a_run_without_time_waits_for_its_consumers() -> None:
    assert PerfOptions(time=1.0).drain_s() == 0.0
    assert PerfOptions(pmessages=10).drain_s() == 30.0
    assert PerfOptions(time=1.0, drain=5.0).drain_s() == 5.0


@pytest.mark.parametrize("producers", [0, 1, 2, 5])
@pytest.mark.parametrize("consumers", [0, 1, 3])
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_every_agent_is_dealt_to_one_process(
    producers: int, consumers: int, processes: int
) -> None:
    shares = deal_agents(PerfOptions(producers=producers, consumers=consumers, processes=processes))
    assert len(shares) <= processes
    assert sorted(number for share in shares for number in share.producers) == list(
        range(producers)
    )
    assert sorted(number for share in shares for number in share.consumers) == list(
        range(consumers)
    )
    if len(shares) > 1:
        assert all(bool(share.producers) != bool(share.consumers) for share in shares)
