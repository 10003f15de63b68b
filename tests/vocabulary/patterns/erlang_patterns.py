"""What RabbitMQ says of patterns: asks Erlang's `re`, with the options that RabbitMQ uses.

    PYTHONPATH=src .venv/bin/python -m tests.vocabulary.patterns.erlang_patterns

asks again for all patterns and names of `rabbitmq_patterns.jsonl` and rewrites that file. RabbitMQ
compiles patterns without options and calls `re:run(Name, Pattern, [{capture, none}])`, both as
octets.
"""

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

RECORDED = Path(__file__).with_name("rabbitmq_patterns.jsonl")

# One line in: the pattern and the names, in base 64. One line out: `ok` and 1 or 0 for each name,
# or `error`, the text in base 64, and the place.
_LOOP = """
Loop = fun(Loop) ->
  case io:get_line("") of
    eof -> halt();
    Line ->
      [Pattern | Names] = [base64:decode(tl(Word)) || Word <- string:lexemes(Line, " \\n")],
      case re:compile(Pattern) of
        {ok, _} ->
          Found = [case re:run(Name, Pattern, [{capture, none}]) of
                     match -> " 1"; nomatch -> " 0" end || Name <- Names],
          io:format("ok~s~n", [Found]);
        {error, {Text, Place}} ->
          io:format("error ~s ~b~n", [base64:encode(list_to_binary(Text)), Place])
      end,
      Loop(Loop)
  end
end,
Loop(Loop).
"""


class Verdict(NamedTuple):
    """`found`: for each name whether the pattern is found in it; `error` of a refused pattern."""

    found: list[bool]
    error: str = ""
    place: int = -1


def ask_erlang(questions: Iterable[tuple[bytes, list[bytes]]]) -> list[Verdict]:
    """The verdict about each pattern and its names."""
    lines = [" ".join([_word(pattern), *map(_word, names)]) for pattern, names in questions]
    reply = subprocess.run(
        ["erl", "-noshell", "-eval", _LOOP],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [_verdict(line) for line in reply.stdout.splitlines()]


def _word(octets: bytes) -> str:
    # "-" begins each word, as an empty one would not be seen.
    return f"-{b64encode(octets).decode()}"


def _verdict(line: str) -> Verdict:
    state, *words = line.split()
    if state == "error":
        return Verdict([], b64decode(words[0]).decode(), int(words[1]))
    return Verdict([word == "1" for word in words])


def _record() -> None:
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    asked = [
        (row["pattern"].encode("latin-1"), [name.encode("latin-1") for name in row["names"]])
        for row in rows
    ]
    with RECORDED.open("w") as file:
        for row, verdict in zip(rows, ask_erlang(asked), strict=True):
            names = row["names"] if not verdict.error else {}
            row["names"] = dict(zip(names, verdict.found, strict=True))
            if verdict.error:
                row["error"] = [verdict.error, verdict.place]
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _record()
