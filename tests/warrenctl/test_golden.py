"""`warrenctl` prints what RabbitMQ's tools printed for the same calls, with the same exit code.

The scenario runs once on a warren node; each family is compared with its golden file. Named
differences are those of docs/differences.md; a difference that is none any more is an error.
"""

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.warrenctl.differences import DIFFERENCES, Difference
from tests.warrenctl.runner import Place, Result, run_families
from tests.warrenctl.scenario import FAMILIES, Call
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.cli.control import main
from warrenmq.cli.control.programs import PROGRAMS

GOLDEN: Final = Path(__file__).with_name("golden")
# What `status` and `cluster_status` show of Erlang and of plug-ins.
ABSENT_SECTIONS: Final = {"Plugins"}
ABSENT_KEYS: Final = {
    "crypto_lib_version",
    "enabled_plugin_file",
    "erlang_version",
    "net_ticktime",
    "processes",
    "raft_data_directory",
    "release_series_support_status",
    "run_queue",
}


def call_warrenctl(call: Call, arguments: list[str]) -> tuple[str, str, int]:
    """Run the tool's command in this process: what it printed, and its exit code."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        mock.patch.object(sys, "stdin", io.StringIO(call.stdin)),
    ):
        code = main(arguments, PROGRAMS[call.tool])
    return stdout.getvalue(), stderr.getvalue(), code


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Result]]:
    """The results of the whole scenario on one node."""
    directory = tmp_path_factory.mktemp("warrenctl")
    process = BrokerProcess(directory / "node")
    process.start()
    data = process.directory / "data"
    try:
        control = read_control_file(data)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WARREN_DATA_DIR", str(data))
            return run_families(
                call_warrenctl, Place(control.node, process.port, directory, control.pid)
            )
    finally:
        process.stop()


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_are_rabbitmqs(family: str, results: dict[str, list[Result]]) -> None:
    golden = [Result(**each) for each in json.loads((GOLDEN / f"{family}.json").read_text())]
    found = results[family]
    assert [each.line for each in golden] == [each.line for each in found], "record again"
    named = DIFFERENCES.get(family, {})
    assert set(named) <= {call.line for call in FAMILIES[family]}
    wrong, differing = [], set()
    for theirs, ours in zip(golden, found, strict=True):
        parts = _differing_parts(theirs, ours)
        if parts:
            differing.add(theirs.line)
        allowed = named.get(theirs.line, Difference.NONE).value
        wrong += [
            f"$ {theirs.line}\n  {part}" for part in parts if part.split(":")[0] not in allowed
        ]
    assert not wrong, "\n".join(["", *wrong])
    assert set(named) <= differing, "differences that are none any more"


@pytest.mark.parametrize("command", ["status", "cluster_status"])
def test_reports_have_rabbitmqs_sections_and_keys(
    command: str, results: dict[str, list[Result]]
) -> None:
    golden = {each["line"]: each for each in json.loads((GOLDEN / "node.json").read_text())}
    ours = {each.line: each for each in results["node"]}
    titles = _titles(str(golden[command]["stdout"]))
    found = [title for title in _titles(ours[command].stdout) if title in titles]
    assert found == [title for title in titles if title not in ABSENT_SECTIONS]
    keys = _parsed(golden[f"{command} --formatter json"]["stdout"])
    own = _parsed(ours[f"{command} --formatter json"].stdout)
    assert set(keys) - set(own) <= ABSENT_KEYS


def _parsed(text: str) -> dict[str, Any]:
    """A JSON object, with numbers for the placeholders of numbers."""
    found: dict[str, Any] = json.loads(re.sub(":(OS-PID|PORT)", ":1", text))
    return found


def _titles(text: str) -> list[str]:
    """The lines of a report that have an empty line before and after them."""
    lines = ["", *text.split("\n")[1:]]
    return [
        line
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
        if line[:1].isalpha() and not before and not after and line != "NODE" and ":" not in line
    ]


def _differing_parts(theirs: Result, ours: Result) -> list[str]:
    """What differs: `exit code`, `stdout`, `stderr`, with both values."""
    pairs = [
        ("exit code", theirs.code, ours.code),
        ("stdout", _comparable(theirs, "stdout"), _comparable(ours, "stdout")),
        ("stderr", _comparable(theirs, "stderr"), _comparable(ours, "stderr")),
    ]
    return [
        f"{what}: {expected!r}\n    ours: {actual!r}"
        for what, expected, actual in pairs
        if expected != actual
    ]


# RabbitMQ's port between nodes, what it says of AMQP 1.0, and a parameter of its own.
_ABSENT: Final = (
    (r"(?m)^(Node: NODE, i|I)nterface: \S+ port: \S+ protocol: clustering.*\n", ""),
    (r'{[^{}]*"protocol":"clustering"[^{}]*},', ""),
    (r"NUMBER, PORT|PORT, NUMBER", "PORT"),
    (r"amqp, clustering", "amqp"),
    (r" and AMQP 1\.0", ""),
    (r'(?m)^.*"?internal_cluster_id.*\n', ""),
)


def _plain_lines(drawn: re.Match[str]) -> str:
    """Plain characters for VT100's lines, which RabbitMQ prints into a pipe as well."""
    return drawn[1].translate(str.maketrans("lwktnumvjqx", "+++++++++-|"))


def _comparable(result: Result, stream: str) -> str:
    """The output without the usage, without an order of rows, with one name for all tools."""
    text = re.sub("\x1b\\(0([a-z]+)\x1b\\(B", _plain_lines, str(getattr(result, stream)))
    text = re.sub(r"rabbitmq(ctl|-diagnostics|-plugins|-queues|-upgrade)\b", "warrenctl", text)
    text = text.partition("\nUsage\n")[0]
    # Ports of clients.
    text = re.sub(r"\b[3-6]\d{4}\b", "NUMBER", text)
    for pattern, replacement in _ABSENT:
        text = re.sub(pattern, replacement, text)
    if stream == "stderr":
        return text.rstrip()
    if "list_" not in result.line:
        return text.rstrip("\n")
    if "--formatter erlang" in result.line:
        banner, _, rows = text.partition("[[")
        return banner + "],\n [".join(sorted(rows.rstrip().removesuffix("]]").split("],\n [")))
    return "\n".join(sorted([line.removeprefix(",") for line in text.split("\n")]))
