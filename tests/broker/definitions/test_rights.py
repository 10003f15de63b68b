"""Rights change in place; topic permissions fill in names as plain text."""

import pytest

from warrenmq.broker.definitions.rights import EXCHANGE, QUEUE, Right, Rights
from warrenmq.wire.errors import ChannelException


def test_a_right_is_searched_for_and_an_empty_one_matches_the_empty_name() -> None:
    assert Right("b").covers(b"abc")
    assert not Right("^b").covers(b"abc")
    assert Right("").covers(b"")
    assert not Right("").covers(b"a")
    assert not Right("(").covers(b"(")
    assert Right("(").error == "missing ) at position 1"


def test_a_change_of_rights_reaches_whoever_holds_them() -> None:
    rights = Rights(b"app", b"/", ".*", ".*", ".*")
    assert rights.write_refusal(EXCHANGE, b"x") == ""
    rights.grant("", "^y", "^q")
    assert rights.write_refusal(EXCHANGE, b"x") == (
        "access to exchange 'x' in vhost '/' refused for user 'app'"
    )
    assert rights.read_refusal(QUEUE, b"q") == ""
    rights.revoke()
    assert not rights.is_granted
    for refusal in (rights.configure_refusal, rights.write_refusal, rights.read_refusal):
        for name in (b"", b"y", b"q"):
            assert refusal(QUEUE, name) == (
                f"access to queue '{name.decode()}' in vhost '/' refused for user 'app'"
            )
    rights.grant(".*", ".*", ".*")
    rights.expect_configure(QUEUE, b"anything")


@pytest.mark.parametrize(
    ("user", "pattern", "key", "is_allowed"),
    [
        ("app", "^{username}[.]", "app.k", True),
        ("app", "^{username}[.]", "application.k", False),
        # The names are plain text, not patterns: RabbitMQ lets `a.c` publish as `abc`.
        ("a.c", "^{username}$", "a.c", True),
        ("a.c", "^{username}$", "abc", False),
        ("a+", "^{username}$", "a+", True),
        ("x[y", "^{username}$", "x[y", True),
        ("{vhost}", "^{username}$", "{vhost}", True),
        ("{vhost}", "^{username}$", "/", False),
        ("app", "^{vhost}-{username}-{client_id}$", "/-app-{client_id}", True),
        ("grün\udcff", "^{username}$", "grün\udcff", True),
    ],
)
def test_placeholders(user: str, pattern: str, key: str, is_allowed: bool) -> None:
    name = user.encode("utf-8", "surrogateescape")
    octets = key.encode("utf-8", "surrogateescape")
    rights = Rights(name, b"/", ".*", ".*", ".*")
    rights.put_topic(b"x", pattern, "")
    assert (rights.topic_write_refusal(b"x", octets) == "") == is_allowed


def test_topic_permissions_refuse_in_rabbitmqs_words() -> None:
    rights = Rights(b"app", b"/", ".*", ".*", ".*")
    rights.put_topic(b"x", "^a", "^b")
    rights.expect_topic_read(b"x", b"b")
    assert rights.topic_write_refusal(b"x", b"a") == ""
    assert rights.topic_write_refusal(b"y", b"anything") == ""
    rights.expect_topic_read(b"y", b"anything")
    text = "access to topic 'c' in exchange 'x' in vhost '/' refused for user 'app'"
    assert rights.topic_write_refusal(b"x", b"c") == text
    with pytest.raises(ChannelException, match=text) as read:
        rights.expect_topic_read(b"x", b"c")
    assert read.value.code == 403
    del rights.topics[b"x"]
    assert rights.topic_write_refusal(b"x", b"c") == ""


@pytest.mark.parametrize("pattern", ["^([a-z0-9]+[._-]?)+$", "^(?!x)([a-z0-9]+[._-]?)+$"])
def test_a_right_answers_at_once_whatever_its_pattern(pattern: str) -> None:
    """An engine that backtracks would try 2**200 ways through the name."""
    name = b"a" * 200 + b"!"
    rights = Rights(b"app", b"/", pattern, pattern, pattern)
    rights.put_topic(b"x", pattern, pattern)
    assert rights.configure_refusal(QUEUE, name) != ""
    assert rights.topic_write_refusal(b"x", name) != ""
    assert rights.write_refusal(EXCHANGE, name[:-1]) == ""
    assert rights.topic_write_refusal(b"x", name[:-1]) == ""
