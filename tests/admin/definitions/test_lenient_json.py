"""JSON as RabbitMQ takes it; the verdicts and values are those of RabbitMQ 3.10.8."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.brokers import rabbitmq_server
from warrenmq.admin.definitions.lenient_json import JsonError, strict_json

ACCEPTED: list[tuple[str, object]] = [
    ("{'ha-mode':'all'}", {"ha-mode": "all"}),
    ("'a'", "a"),
    ('{"a":1,}', {"a": 1}),
    ("[1,2,\n]", [1, 2]),
    ('[{"a":[1,],},]', [{"a": [1]}]),
    ('{"a":1} // c', {"a": 1}),
    ('/* x */ {"a": /* c */ 1}', {"a": 1}),
    ('{"a":"x" // t\n, "b":2}', {"a": "x", "b": 2}),
    ("""{"a":"it's"}""", {"a": "it's"}),
    (r"{'a':'it\'s'}", {"a": "it's"}),
    ("""{'a':'say "x"'}""", {"a": 'say "x"'}),
    ('{"a":"x\ny\t"}', {"a": "x\ny\t"}),
    (r'{"a":"\q\x41"}', {"a": r"\q\x41"}),
    (r'{"a":"\u00"}', {"a": r"\u00"}),
    ('{"a":"\\\nb"}', {"a": "\\\nb"}),
    (r'{"a":"\ud800"}', {"a": "\ufffd"}),
    (r"""{'a\u0041':'\ud83d\ude00'}""", {"aA": "\U0001f600"}),
    ('{"a":1,"a":2}', {"a": 2}),
    ('{"a":1e5,"b":-0,}', {"a": 1e5, "b": 0}),
    ('\ufeff{"a":1}', {"a": 1}),
]  # fmt: skip
REFUSED: list[tuple[str, str]] = [
    ("", "line 1, column 1: expected a value, got the end"),
    ("{a:1}", "line 1, column 2: unexpected sign: 'a:1}'"),
    ('{"a":1,,}', "line 1, column 8: expected a name in quotes or }, got ','"),
    ("[,]", "line 1, column 2: expected a value or ], got ','"),
    ("{,}", "line 1, column 2: expected a name in quotes or }, got ','"),
    ('{"a":1 # c\n}', "line 1, column 8: unexpected sign: '# c'"),
    ('{"a":1} x', "line 1, column 9: unexpected sign: 'x'"),
    ('{"a":1}{"b":2}', "line 1, column 8: expected the end, got '{'"),
    ('{"a":01}', "line 1, column 6: unexpected sign: '01}'"),
    ('{\n "a":1.}', "line 2, column 6: unexpected sign: '1.}'"),
    ('{"a":.5}', "line 1, column 6: unexpected sign: '.5}'"),
    ('{"a":+1}', "line 1, column 6: unexpected sign: '+1}'"),
    ('{"a":TRUE}', "line 1, column 6: unexpected sign: 'TRUE}'"),
    ('{"a":NaN}', "line 1, column 6: unexpected sign: 'NaN}'"),
    ('{"a":"b" "c":1}', "line 1, column 10: expected , or }, got '\"c\"'"),
    ('{"a":1 /* open', "line 1, column 8: unexpected sign: '/* open'"),
    ("[1 2]", "line 1, column 4: expected , or ], got '2'"),
    ('[\n\n  "open]', "line 3, column 3: a text without its end: '\"open]'"),
    (' \ufeff{"a":1}', "line 1, column 2: unexpected sign: '\\ufeff{\"a\":1}'"),
    ('{"a":1', "line 1, column 7: expected , or }, got the end"),
    ("[" * 100_000, "line 1, column 1: too many values inside one another"),
]  # fmt: skip
# Prints "ok" or "error" for each text in a file of texts that RabbitMQ's parser takes or refuses.
VERDICTS = r"""
main([Plugins, File]) ->
    [code:add_patha(Directory) || Directory <- filelib:wildcard(Plugins ++ "/*/ebin")],
    {ok, Data} = file:read_file(File),
    [io:format("~s~n", [element(1, rabbit_json:try_decode(Text))])
     || Text <- binary:split(Data, <<0>>, [global])].
"""


@pytest.mark.parametrize(("text", "value"), ACCEPTED)
def test_a_lenient_text_becomes_strict(text: str, value: object) -> None:
    strict = strict_json(text.encode())
    assert json.loads(strict) == value
    assert strict_json(strict) == strict


@pytest.mark.parametrize(("text", "fault"), REFUSED)
def test_a_fault_has_its_line_and_column(text: str, fault: str) -> None:
    with pytest.raises(JsonError) as caught:
        strict_json(text.encode())
    assert str(caught.value) == fault


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(JsonError, match=r"^line 2, column 3: not UTF-8 text$"):
        strict_json(b'{"\xc3\xa9":\n "\xff"}')


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["", "// c\n", "/* c */", "\n"]),
)
def test_comments_and_last_commas_change_no_value(value: object, comment: str) -> None:
    def lenient(part: object) -> str:
        if isinstance(part, list):
            items = "".join([f"{comment}{lenient(item)}," for item in part])
            return f"[{items}{comment}]"
        if isinstance(part, dict):
            members = "".join([f"{lenient(key)}:{lenient(item)}," for key, item in part.items()])
            return f"{{{comment}{members}}}"
        return json.dumps(part, ensure_ascii=False)

    assert json.loads(strict_json(lenient(value).encode())) == value


@pytest.mark.skipif(rabbitmq_server() is None, reason="rabbitmq-server is not installed")
def test_the_verdicts_are_those_of_rabbitmq(tmp_path: Path) -> None:
    script = tmp_path / "verdicts"
    script.write_text("#!/usr/bin/env escript\n" + VERDICTS)
    texts = [text for text, _ in [*ACCEPTED, *REFUSED[:-1]]]
    (tmp_path / "texts").write_bytes("\0".join(texts).encode())
    plugins = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-3.*/plugins"))
    done = subprocess.run(
        ["escript", script, plugins, tmp_path / "texts"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
    )
    assert done.stdout.split() == ["ok"] * len(ACCEPTED) + ["error"] * (len(REFUSED) - 1)
