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
from typing import Final
from unittest import mock

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.warrenctl.differences import DIFFERENCES, Difference
from tests.warrenctl.runner import Place, Result, run_families
from tests.warrenctl.scenario import FAMILIES, Call
from warrenmq.admin.control_file import read_control_file
from warrenmq.cli.control import main

GOLDEN: Final = Path(__file__).with_name("golden")


def call_warrenctl(call: Call, arguments: list[str]) -> tuple[str, str, int]:
    """Run `warrenctl` in this process: what it printed, and its exit code."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        mock.patch.object(sys, "stdin", io.StringIO(call.stdin)),
    ):
        code = main(arguments)
    return stdout.getvalue(), stderr.getvalue(), code


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Result]]:
    """The results of the whole scenario on one node."""
    directory = tmp_path_factory.mktemp("warrenctl")
    process = BrokerProcess(directory / "node")
    process.start()
    data = process.directory / "data"
    try:
        node = read_control_file(data).node
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WARREN_DATA_DIR", str(data))
            return run_families(call_warrenctl, Place(node, process.port, directory))
    finally:
        process.stop()


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_are_rabbitmqs(family: str, results: dict[str, list[Result]]) -> None:
    golden = [Result(**each) for each in json.loads((GOLDEN / f"{family}.json").read_text())]
    found = results[family]
    assert [each.line for each in golden] == [each.line for each in found], "record again"
    wrong = [
        text
        for expected, actual in zip(golden, found, strict=True)
        if (text := _mismatch(family, expected, actual))
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_all_named_differences_are_of_the_scenario() -> None:
    lines = {(family, call.line) for family, calls in FAMILIES.items() for call in calls}
    named = {(family, line) for family, difference in DIFFERENCES.items() for line in difference}
    assert named <= lines


def _mismatch(family: str, expected: Result, actual: Result) -> str:
    difference = DIFFERENCES.get(family, {}).get(expected.line, Difference.NONE)
    if difference is Difference.ALL:
        return ""
    parts = [("exit code", expected.code, actual.code)]
    if difference is Difference.NONE:
        parts += [
            ("stdout", _comparable(expected, "stdout"), _comparable(actual, "stdout")),
            ("stderr", _comparable(expected, "stderr"), _comparable(actual, "stderr")),
        ]
    wrong = [
        f"  {what}: {theirs!r}\n     ours: {ours!r}"
        for what, theirs, ours in parts
        if theirs != ours
    ]
    return "\n".join([f"$ {expected.line}", *wrong]) if wrong else ""


def _comparable(result: Result, stream: str) -> str:
    """The output without the usage, without an order of rows, with one name for all tools."""
    text = str(getattr(result, stream))
    text = re.sub(r"rabbitmq(ctl|-diagnostics)\b", "warrenctl", text)
    text = text.partition("\nUsage\n")[0].rstrip("\n")
    # Ports of clients.
    text = re.sub(r"\b[3-6]\d{4}\b", "NUMBER", text)
    if result.line.startswith("list_") or " list_" in result.line:
        lines = [line.lstrip(",") for line in text.split("\n")]
        text = "\n".join(sorted(lines))
    return text
