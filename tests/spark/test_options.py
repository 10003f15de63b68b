"""Options: typed once, and nothing is ignored."""

import pickle

import pytest

from warren.spark.options import URI_VARIABLE, OptionError, parse_options

GIVEN = {"uri": "amqp://u:geheim@h:1/v", "queue": "q"}


def test_defaults_and_names_in_any_case() -> None:
    """Spark hands names over in lower case; users write them as documented."""
    options = parse_options(
        GIVEN
        | {"GROUP": "g", "maxmessagespertrigger": "5", "includebody": "FALSE", "startingOffsets": "Latest"}
    )
    assert (options.group, options.max_messages, options.include_body, options.from_latest) == (
        "g",
        5,
        False,
        True,
    )
    assert (options.max_bytes, options.long_poll_ms, options.retry_timeout_ms) == (134217728, 2000, 120000)
    assert options.fail_on_data_loss and options.include_headers
    assert options.vhost == "v"


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"maxMessagePerTrigger": "5"}, "unknown option 'maxmessagepertrigger'.*maxMessagesPerTrigger"),
        ({"path": "/x"}, "unknown option 'path'"),
        ({"queue": ""}, "'queue' is missing"),
        ({"queue": "é" * 128}, "255 bytes"),
        ({"uri": "http://h"}, "must begin with amqp://"),
        ({"uri": "amqps://h"}, "must begin with amqp://"),
        ({"uri": "amqp://h:port"}, "port is not a number"),
        ({"uri": "amqp://h/v?heartbeat=3"}, "parameters"),
        ({"group": "a b"}, "'group'"),
        ({"group": "g" * 129}, "'group'"),
        ({"startingOffsets": "middle"}, "earliest or latest"),
        ({"maxMessagesPerTrigger": "0"}, "whole number from 1"),
        ({"maxBytesPerTrigger": "128m"}, "whole number"),
        ({"longPollMs": "60001"}, "whole number from 0 to 60000"),
        ({"retryTimeoutMs": "-1"}, "whole number"),
        ({"failOnDataLoss": "yes"}, "true or false"),
    ],
)
def test_what_cannot_be_honoured_is_an_error_in_one_line(extra: dict[str, str], text: str) -> None:
    """The message names the option as documented, and never the password."""
    with pytest.raises(OptionError, match=text) as caught:
        parse_options(GIVEN | extra)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_uri_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no password stands in a program; without either it is an error."""
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    with pytest.raises(OptionError, match=URI_VARIABLE):
        parse_options({"queue": "q"})
    monkeypatch.setenv(URI_VARIABLE, "amqp://u:p@h/w")
    assert parse_options({"queue": "q"}).vhost == "w"


def test_options_travel_and_do_not_show_the_password() -> None:
    """They are pickled for the workers and may appear in logs."""
    options = parse_options(GIVEN)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "geheim" not in repr(options)
