"""Runs the scenario with any tool and replaces what differs between two runs by placeholders."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.awaiting import eventually
from tests.warrenctl.objects import Objects
from tests.warrenctl.scenario import FAMILIES, Call

SMALL: Final = (
    '{"users": [{"name": "imported", "password_hash": "", "tags": "", "limits": {}}],'
    ' "vhosts": [{"name": "imported"}],'
    ' "queues": [{"name": "q", "vhost": "imported", "durable": true, "auto_delete": false,'
    ' "arguments": {"x-message-ttl": 5000}}]}'
)
WRONG: Final = (
    '{"policies": [{"vhost": "/", "name": "p", "pattern": "^x", "definition": {"nonsense": 1}}]}'
)
# Makes one call with the given arguments: its output, its errors and its exit code.
Run = Callable[[Call, list[str]], tuple[str, str, int]]


@dataclass(frozen=True)
class Result:
    """What one call printed, and its exit code."""

    line: str
    stdout: str
    stderr: str
    code: int


@dataclass(frozen=True)
class Place:
    """What the placeholders stand for on this machine."""

    node: str
    port: int
    directory: Path
    # Of the node's process.
    os_pid: int


def run_families(run: Run, place: Place) -> dict[str, list[Result]]:
    """Run the whole scenario on the fresh node of `place`; the results are normalised."""
    (place.directory / "broken.json").write_text("{")
    (place.directory / "wrong.json").write_text(WRONG)
    (place.directory / "small.json").write_text(SMALL)
    (place.directory / "node.pid").write_text(str(place.os_pid))
    objects = Objects(place.port)
    pid = ""
    results: dict[str, list[Result]] = {}
    try:
        for family, calls in FAMILIES.items():
            results[family] = []
            for call in calls:
                if not pid and "{pid}" in call.line:
                    pid = run(Call(""), ["-s", "list_connections", "pid"])[0].split("\n")[0]
                arguments = [
                    each.replace("{dir}", str(place.directory))
                    .replace("{port}", str(place.port))
                    .replace("{pid}", pid)
                    .replace("{os_pid}", str(place.os_pid))
                    for each in call.arguments
                ]
                stdout, stderr, code = run(call, arguments)
                results[family].append(
                    Result(call.line, normal(stdout, place), normal(stderr, place), code)
                )
                if call.line.removeprefix("--formatter json ").startswith("close_"):
                    _await_closed(run, objects)
    finally:
        objects.close()
    return results


def _await_closed(run: Run, objects: Objects) -> None:
    """Return when the node lists no connection that is closed."""

    def is_done() -> bool:
        open_count = objects.process()
        listed = run(Call(""), ["-s", "list_connections", "pid"])[0]
        return listed.count("\n") == open_count

    eventually(is_done, "closed connections are gone", 0.1)


def normal(text: str, place: Place) -> str:
    """`text` with placeholders for node, ports, pids, paths; without colours."""
    text = re.sub("\x1b\\[[01]m", "", text)
    text = re.sub(r"<[^<>@]+@[^<>]+\.\d+\.\d+\.\d+>", "<PID>", text)
    text = re.sub(r"<\d+\.\d+\.\d+>", "<PID>", text)
    text = text.replace(place.node, "NODE").replace(str(place.directory), "DIR")
    text = re.sub(r"(?<![\d.])\d+\.\d+\.\d+(?:rc\d+)?(?![\d.])", "VERSION", text)
    text = re.sub(r"127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+", "PEER -> HOST", text)
    text = re.sub(rf"\b{place.os_pid}\b", "OS-PID", text)
    return re.sub(rf"\b{place.port}\b", "PORT", text)


def as_json(results: list[Result]) -> list[dict[str, Any]]:
    """The results as a golden file has them."""
    return [vars(each) for each in results]
