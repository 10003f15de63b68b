"""Command lines are read as rabbitmqctl reads them, and values shown as it shows them."""

import pytest

from warrenmq.cli.control.formats.output import Style, Table, csv, json, table
from warrenmq.cli.control.formats.values import Json, cell_text
from warrenmq.cli.control.parsing import Option, parse

OPTIONS = (Option("apply-to"), Option("priority", "integer"), Option("if-empty", "flag", "e"))


@pytest.mark.parametrize(
    ("words", "arguments", "options", "invalid"),
    [
        ("c a b", ["a", "b"], {}, []),
        ("-p / c -q a", ["a"], {"vhost": "/", "quiet": True}, []),
        ("c a -p", ["a"], {}, [("-p", "")]),
        ("c --vhost=x=y", [], {"vhost": "x=y"}, []),
        ("c --vhost -q", [], {"quiet": True}, [("--vhost", "")]),
        ("c --apply_to queues", [], {"apply-to": "queues"}, []),
        ("c --priority -5 -7 -0.5", ["-7", "-0.5"], {"priority": -5}, []),
        ("c --priority 1.5", [], {}, [("--priority", "1.5")]),
        ("c -e --no-if-empty", [], {"if-empty": False}, []),
        ("c --if-empty=true --quiet=maybe", [], {"if-empty": True}, [("--quiet", "maybe")]),
        ("c --wrong --also=1 -x a", ["a"], {}, [("--wrong", ""), ("--also", ""), ("-x", "")]),
        ("c --no-wrong -", ["-"], {}, [("--no-wrong", "")]),
        ("c -- -p --if-empty", ["-p", "--if-empty"], {}, []),
    ],
)
def test_options_may_stand_anywhere(
    words: str,
    arguments: list[str],
    options: dict[str, object],
    invalid: list[tuple[str, str]],
) -> None:
    line = parse(words.split(), lambda _command: OPTIONS)
    assert line.command == "c"
    assert (line.arguments, line.options, line.invalid) == (arguments, options, invalid)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\tb", "a\tb"),
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        (["a", "b"], "[a, b]"),
        ({}, "[]"),
        ({"x-a": "lazy", "b": False}, '[{"x-a","lazy"},{"b",false}]'),
        ({"l": [1, "two", [], {"k": None}]}, '[{"l",[1,"two",[],[{"k",undefined}]]}]'),
        ({"q": 'say "\\"'}, '[{"q","say \\"\\\\\\""}]'),
        (Json({"b": 1, "a": ["ü", None]}), '{"a":["ü",null],"b":1}'),
    ],
)
def test_cells_are_erlang_terms(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_each_format_keeps_its_rows_apart() -> None:
    output = Table(("name", "n"), [['a,"b"', 1], ["c", None]])
    assert table(output, Style()) == 'name\tn\na,"b"\t1\nc\t\n'
    assert csv(output, Style()) == '"name","n"\n"a,""b""","1"\n"c",""\n'
    assert json(output, Style()) == '[\n{"name":"a,\\"b\\"","n":1}\n,{"name":"c","n":""}\n]\n'
