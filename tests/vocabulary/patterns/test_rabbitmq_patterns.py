"""Patterns have the meaning that they have in RabbitMQ, or are refused."""

import json
from typing import Any

import pytest

from tests.vocabulary.patterns.erlang_patterns import RECORDED
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import Pattern

ROWS = [json.loads(line) for line in RECORDED.read_text().splitlines()]
# RabbitMQ takes these; warren refuses them.
UNSUPPORTED = {
    "^a(?R)?b$",
    "(?1)(a)",
    "(a)?(?(1)b|c)",
    "(?|(a)|(b))\\1",
    "(*ACCEPT)a",
    "\\Xa",
    "(?C1)a",
    "(?J)a",
    "(a)\\g<1>",
}


@pytest.mark.parametrize("row", ROWS, ids=[row["pattern"] for row in ROWS])
def test_a_pattern_finds_what_it_finds_in_rabbitmq(row: dict[str, Any]) -> None:
    text = row["pattern"].encode("latin-1").decode("utf-8", "surrogateescape")
    if row["pattern"] in UNSUPPORTED:
        with pytest.raises(PatternError, match=r"^not supported: "):
            Pattern(text)
    elif "error" in row:
        with pytest.raises(PatternError) as refused:
            Pattern(text)
        assert [refused.value.reason, refused.value.place] == row["error"]
    else:
        pattern = Pattern(text)
        names = row["names"]
        assert {name: pattern.is_found_in(name.encode("latin-1")) for name in names} == names
