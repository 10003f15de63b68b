"""Tests the options: parsed into typed values, and none is ignored."""

import pickle

import pytest

from warrenmq.admin.client.client import URI_VARIABLE
from warrenmq.spark.amqp.options import parse_amqp_source
from warrenmq.spark.options import EVERYTHING, Bound, OptionError, parse_options
from warrenmq.spark.sinks.options import parse_sink_options

GIVEN = {"uri": "amqp://u:geheim@h:1", "queues": "q"}


def test_defaults_and_names_in_any_case() -> None:
    """Option names are accepted in any case: Spark passes them in lower case."""
    options = parse_options(
        GIVEN
        | {
            "GROUP": "g",
            "maxmessagespertrigger": "5",
            "includebody": "FALSE",
            "startingOffsets": "Latest",
        }
    )
    assert (options.group, options.max_messages, options.include_body) == ("g", 5, False)
    assert (options.queues, options.pattern) == (("q",), "")
    assert options.start == Bound(name="latest")
    assert options.end == Bound()
    assert (options.seq_from, options.seq_to, options.min_partitions) == (0, EVERYTHING, 1)
    assert (options.max_bytes, options.long_poll_ms, options.retry_timeout_ms) == (
        512 << 20,
        2000,
        120000,
    )
    assert (options.min_messages, options.max_delay_ms) == (1, 900_000)
    assert (options.ack_on, options.access) == ("latestOffset", "auto")
    assert options.fail_on_data_loss and options.include_headers and options.is_verified
    assert not parse_options(GIVEN | {"verify": "NONE"}).is_verified
    assert options.vhost == "/"
    assert (options.stream_options, options.batch_options) == (
        ("group", "maxMessagesPerTrigger"),
        (),
    )


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (
            {"maxMessagePerTrigger": "5"},
            "unknown option 'maxmessagepertrigger'.*maxMessagesPerTrigger",
        ),
        ({"path": "/x"}, "unknown option 'path'"),
        ({"queue": "q"}, "unknown option 'queue'.*queues"),
        ({"queues": ""}, "'queues': names"),
        ({"queues": "a,,b"}, "'queues': names"),
        ({"queues": "[1]"}, "'queues': names"),
        ({"queues": "a,b,a"}, "a queue twice"),
        ({"queues": "[" * 100_000}, "'queues': names"),
        ({"queues": '["\\ud800"]'}, "'queues': names"),
        ({"queues": "é" * 128}, "255 bytes"),
        ({"queuesPattern": "q.*"}, "'queues' and 'queuesPattern' exclude each other"),
        ({"uri": "http://h"}, "must begin with amqp://"),
        ({"uri": "amqps://h/?verify=no"}, "verify_peer or verify_none"),
        ({"uri": "amqp://h:port"}, "port is not a number"),
        ({"uri": "amqp://h/v?heartbeat=3"}, "parameters"),
        ({"uri": "amqp://h/v", "vhost": "w"}, "names a vhost already"),
        ({"vhost": ""}, "'vhost' is empty"),
        ({"group": "a b"}, "'group'"),
        ({"group": "g" * 129}, "'group'"),
        ({"startingOffsets": "middle"}, "earliest, latest, or positions"),
        ({"startingOffsets": '{"q": -1}'}, "positions by queue"),
        ({"startingOffsets": "{}"}, "positions by queue"),
        ({"startingOffsets": '{"q":' * 100_000}, "positions by queue"),
        ({"startingOffsets": '{"\\ud800": 1}'}, "none of the queues"),
        ({"startingOffsets": '{"r": 1}'}, "'r', which is none of the queues"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is latest, or positions"),
        ({"startingOffsets": "latest", "seqFrom": "3"}, "exclude each other"),
        ({"endingOffsets": "latest", "endingTimestamp": "2026-01-01"}, "exclude each other"),
        ({"startingTimestamp": "yesterday"}, "a time like"),
        ({"startingTimestamp": "1966-01-01"}, "since 1970"),
        ({"maxMessagesPerTrigger": "0"}, "whole number from 1"),
        ({"maxBytesPerTrigger": "128m"}, "whole number"),
        (
            {"minMessagesPerTrigger": "11", "maxMessagesPerTrigger": "10"},
            "whole number from 1 to 10",
        ),
        ({"maxTriggerDelay": "5s"}, "nothing without 'minMessagesPerTrigger'"),
        ({"minMessagesPerTrigger": "5", "maxTriggerDelay": "5"}, "a duration such as"),
        ({"minMessagesPerTrigger": "5", "maxTriggerDelay": "25h"}, "at most 24h"),
        ({"longPollMs": "60001"}, "whole number from 0 to 60000"),
        ({"retryTimeoutMs": "-1"}, "whole number"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"access": "disk"}, "one of auto, files, network"),
        ({"verify": "yes"}, "one of crc, none"),
        ({"ackOn": "start"}, "one of latestOffset, commit"),
    ],
)
def test_what_cannot_be_honoured_is_an_error_in_one_line(extra: dict[str, str], text: str) -> None:
    """The error is one line, names the option as documented, and has no password."""
    with pytest.raises(OptionError, match=text) as caught:
        parse_options(GIVEN | extra)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("maxOffsetsPerTrigger", " (did you mean maxMessagesPerTrigger?)"),
        ("minOffsetsPerTrigger", " (did you mean minMessagesPerTrigger?)"),
        ("subscribe", " (did you mean queues?)"),
        ("subscribePattern", " (did you mean queuesPattern?)"),
        ("kafka.group.id", " (did you mean group?)"),
        ("maxMesagesPerTrigger", " (did you mean maxMessagesPerTrigger?)"),
        ("queue", " (did you mean queues?)"),
        ("startingOffsetsByTimestamp", " (did you mean startingTimestamp?)"),
        ("kafka.bootstrap.servers", " (did you mean uri?)"),
        (
            "kafka.sasl.jaas.config",
            " (of Kafka's client; user, password and TLS are parts of the option 'uri')",
        ),
        (
            "startingOffsetsByTimestampStrategy",
            " (not needed: a time behind the end of a queue is its end)",
        ),
        ("rowsPerSecond", ""),
    ],
)
def test_a_name_from_kafka_or_a_misspelt_one_has_a_hint(name: str, meant: str) -> None:
    """The error names the option that means the same, and none for a name of another source."""
    with pytest.raises(OptionError) as caught:
        parse_options(GIVEN | {name: "5"})
    begin = f"unknown option '{name.lower()}'{meant}; format "
    assert str(caught.value).startswith(begin)


def test_the_hint_is_an_option_of_the_same_kind_of_use() -> None:
    """The hint for `subscribe` is the option of the broker's kind, and writing has no such one."""
    with pytest.raises(OptionError, match=r"'subscribe' \(did you mean queue\?\)"):
        parse_amqp_source({"broker": "amqp", "subscribe": "q"})
    with pytest.raises(OptionError, match="unknown option 'subscribe'; writing"):
        parse_sink_options({"subscribe": "q"})
    with pytest.raises(OptionError, match=r"'topic' \(did you mean routingKey\?\)"):
        parse_sink_options({"topic": "q"})


def test_queues_are_named_by_a_list_or_by_a_pattern() -> None:
    """Queue names are separated by commas, or JSON when they contain commas; they are sorted."""
    assert parse_options(GIVEN | {"queues": "b, a"}).queues == ("a", "b")
    assert parse_options(GIVEN | {"queues": ' ["b,c", "a"]'}).queues == ("a", "b,c")
    quoted = """["it's", "\\"é\\"", "[x"]"""
    assert parse_options(GIVEN | {"queues": quoted}).queues == ('"é"', "[x", "it's")
    uri = {"uri": GIVEN["uri"]}
    by_pattern = parse_options(uri | {"queuesPattern": r"orders\..*"})
    assert (by_pattern.queues, by_pattern.pattern) == ((), r"orders\..*")
    # The first pattern has syntax that only RE2 knows, the next one syntax that only Python knows.
    letters = {"queuesPattern": r"\pL+"}
    assert parse_options(uri | letters | {"startingOffsets": '{"é": 1}'}).start == Bound(
        seqs={"é": 1}
    )
    for wrong in ('{"1": 1}', '{"\\udcff": 1}'):
        with pytest.raises(OptionError, match="none of the queues"):
            parse_options(uri | letters | {"startingOffsets": wrong})
    with pytest.raises(OptionError, match="no regular expression"):
        parse_options(uri | {"queuesPattern": "(?=a)a"})
    with pytest.raises(OptionError, match="'queues' is missing"):
        parse_options(uri)
    with pytest.raises(OptionError, match="no regular expression"):
        parse_options(uri | {"queuesPattern": "("})
    with pytest.raises(OptionError, match="1 to 1000 characters"):
        parse_options(uri | {"queuesPattern": ""})
    with pytest.raises(OptionError, match="none of the queues"):
        parse_options(uri | {"queuesPattern": "a", "startingOffsets": '{"ab": 1}'})


def test_where_to_begin_and_to_end() -> None:
    """Reading begins and ends at a name, a time in any zone, or positions."""
    assert parse_options(GIVEN | {"startingOffsets": '{"q": 7}'}).start == Bound(seqs={"q": 7})
    at_noon = parse_options(GIVEN | {"startingTimestamp": "2026-01-31T12:00:00+01:00"}).start
    assert at_noon == Bound(timestamp_ms=1769857200000)
    assert parse_options(GIVEN | {"endingTimestamp": "2026-01-31T11:00:00"}).end == at_noon
    for text, ms in (
        ("12:00:00.001", 1),
        ("12:00:00.0010004", 1),
        ("12:00:00.001001Z", 2),
        ("14:00:00.0001+02:00", 1),
    ):
        found = parse_options(GIVEN | {"startingTimestamp": f"2026-01-31T{text}"}).start
        assert found == Bound(timestamp_ms=1769860800000 + ms)
    delayed = parse_options(GIVEN | {"minMessagesPerTrigger": "100", "maxTriggerDelay": "90 s"})
    assert (delayed.min_messages, delayed.max_delay_ms) == (100, 90_000)


def test_vhost_may_stand_in_the_uri_or_in_an_option() -> None:
    """The vhost is in the URI or in an option, which takes any name without encoding."""
    assert parse_options(GIVEN | {"uri": "amqp://h/a%2Fb"}).vhost == "a/b"
    options = parse_options(GIVEN | {"vhost": "a/b é"})
    assert options.vhost == "a/b é"
    assert options.uri == "amqp://u:geheim@h:1/a%2Fb%20%C3%A9"


def test_uri_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URI may come from the environment, to keep passwords out of programs; it is required."""
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    with pytest.raises(OptionError, match=URI_VARIABLE):
        parse_options({"queues": "q"})
    monkeypatch.setenv(URI_VARIABLE, "amqp://u:p@h/w")
    assert parse_options({"queues": "q"}).vhost == "w"


def test_options_travel_and_do_not_show_the_password() -> None:
    """Options can be pickled for workers, and their repr, which may be logged, has no password."""
    options = parse_options(GIVEN)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "geheim" not in repr(options)
