"""Which engine matches a pattern, and that no pattern takes long for any name."""

import logging
from contextlib import suppress

import pytest

from warrenmq.vocabulary.patterns.machine import Machine, OutOfSteps
from warrenmq.vocabulary.patterns.name_pattern import NamePattern
from warrenmq.vocabulary.patterns.parser import parse
from warrenmq.vocabulary.patterns.pattern import (
    MACHINE,
    NOTHING_NEEDED,
    RE2,
    STEPS_AFTERWARDS,
    STEPS_MAX,
    Pattern,
)
from warrenmq.vocabulary.patterns.program import Program


@pytest.mark.parametrize(
    ("pattern", "engine"),
    [
        ("", NOTHING_NEEDED),
        (".*", NOTHING_NEEDED),
        ("^(x|y*)", NOTHING_NEEDED),
        ("^$", RE2),
        ("^([a-z0-9]+[._-]?)+$", RE2),
        ("^(orders|bills$)", RE2),
        ("(?m)^a|b$", MACHINE),
        ("a$\\n", MACHINE),
        ("(a$)+", MACHINE),
        ("a{1001}", MACHINE),
        ("^(?!amq\\.)", MACHINE),
        ("(a)\\1", MACHINE),
        ("a++", MACHINE),
        ("\\bapp\\b", MACHINE),
    ],
)
def test_re2_matches_what_it_can_express(pattern: str, engine: str) -> None:
    assert Pattern(pattern).engine == engine


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?!x)([a-z0-9]+[._-]?)+$",
        "^(?=(a|aa)+$)",
        "^((?!.*x).)*$",
        "^(?>(a+)+)+$",
        "\\b(a*)*(a*)*(a*)*$",
        "(?<!x)(a|a)*(?<=a)$",
        "^(?:(?=a)(a+|aa)+)+$",
    ],
)
def test_the_machine_tries_nothing_twice(pattern: str) -> None:
    """An engine that forgets what it has tried would try 2**250 ways through these."""
    machine = Machine(Program(parse(pattern.encode())), b"a" * 250 + b"!", STEPS_MAX)
    machine.is_found()


def test_a_pattern_that_runs_out_of_steps_gets_fewer(caplog: pytest.LogCaptureFixture) -> None:
    text = "(a+)b\\1c"
    endless, long, short = b"a" * 250, b"a" * 60 + b"-abac", b"abac"
    assert STEPS_AFTERWARDS < _steps(text, long) < STEPS_MAX
    pattern = Pattern(text)
    assert pattern.is_found_in(long)
    with caplog.at_level(logging.WARNING):
        assert not pattern.is_found_in(endless)
        assert not pattern.is_found_in(endless + b"!")
    assert [record.getMessage() for record in caplog.records] == [
        f"the regular expression '{text}' takes too long for some names, and does not match them"
    ]
    assert not pattern.is_found_in(long)
    assert pattern.is_found_in(short)


def _steps(pattern: str, name: bytes) -> int:
    machine = Machine(Program(parse(pattern.encode())), name, STEPS_MAX)
    with suppress(OutOfSteps):
        machine.is_found()
    return int(machine.steps)


@pytest.mark.parametrize(
    "pattern", ["(?:(?=a)a{1000}){1000}", "(?!" + "a" * 5000 + ")", "a" * 8193]
)
def test_a_program_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression is too large"):
        Pattern(pattern)


def test_deep_nesting_is_refused() -> None:
    Pattern("(" * 99 + "a" + ")" * 99)
    with pytest.raises(ValueError, match="not supported: more than 100 parentheses"):
        Pattern("(" * 101 + "a" + ")" * 101)


def test_a_pattern_of_whole_names_is_on_characters() -> None:
    assert NamePattern("caf.").matches("café")
    assert not NamePattern("caf").matches("café")
    assert not NamePattern("([a-z0-9]+[._-]?)+").matches("a" * 250 + "!")
    with pytest.raises(ValueError, match=r"invalid perl operator: \(\?="):
        NamePattern("(?=a)")
