"""Reply codes and texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.wire.errors import (
    INTERNAL_ERROR,
    NOT_FOUND,
    AmqpError,
    ChannelException,
    ConnectionException,
    octets_text,
    reply_text,
)


def test_reply_has_the_name_of_its_code() -> None:
    """The text goes onto the wire unchanged."""
    error = ChannelException(NOT_FOUND, "no queue 'q' in vhost '/'", 50, 10)
    assert (error.code, error.text) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
    assert (error.class_id, error.method_id) == (50, 10)
    assert isinstance(error, AmqpError)
    assert str(error) == "(404, \"NOT_FOUND - no queue 'q' in vhost '/'\")"


def test_reply_without_explanation_is_the_bare_name() -> None:
    """RabbitMQ answers so when it crashed."""
    assert ConnectionException(INTERNAL_ERROR, "").text == "INTERNAL_ERROR"


@given(st.integers(200, 600), st.text(st.characters(), max_size=400))
def test_reply_text_fits_a_shortstr(code: int, explanation: str) -> None:
    """A reply text has at most 255 bytes of UTF-8, whatever it quotes, lone surrogates included."""
    assert len(reply_text(code, explanation).encode()) <= 255


def test_long_reply_is_cut_to_252_bytes_and_dots() -> None:
    """A character is never cut in two."""
    assert reply_text(404, "x" * 243) == "NOT_FOUND - " + "x" * 243
    assert reply_text(404, "x" * 244) == "NOT_FOUND - " + "x" * 240 + "..."
    assert reply_text(404, "x" + "é" * 200) == "NOT_FOUND - x" + "é" * 119 + "..."


@pytest.mark.parametrize(("octets", "text"), [(b"", "<<>>"), (b"\x00\xff", "<<0,255>>")])
def test_octets_are_quoted_in_decimal(octets: bytes, text: str) -> None:
    """Octets are quoted in RabbitMQ's notation."""
    assert octets_text(octets) == text


def test_quoted_octets_are_bounded() -> None:
    """A megabyte of garbage does not become four megabytes of text."""
    assert len(octets_text(bytes(1 << 20))) < 300
