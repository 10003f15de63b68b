"""`warren pipeline schedule` sets, lists and removes schedules, with the words of the jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.node_thread import NodeThread
from tests.support.command_line import warren, warren_json
from warrenmq.cli.pipeline.words import arguments_of
from warrenmq.management.jobs.kinds import KINDS, BadArguments, words
from warrenmq.management.jobs.places import JobsDirectory


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path)
    yield node
    node.stop()


def test_add_list_and_remove(node: NodeThread, tmp_path: Path) -> None:
    command = ("pipeline", "schedule")
    at = ("--port", node.port)
    job = ("report", "reports/{run}.html", "--no-headers", "--engine", "local")
    added = warren(*command, "add", "--cron", "0 3 * * *", *at, "nightly", *job)
    assert (added.returncode, added.stdout) == (0, ""), added.stderr
    (found,) = warren_json(*command, "list", *at)["schedules"]
    assert found.pop("since") > 0
    assert found == {
        "vhost": "/",
        "name": "nightly",
        "job": "report",
        "user": "guest",
        "cron": "0 3 * * *",
        "arguments": {"html": "reports/{run}.html", "headers": False, "engine": "local"},
        "last": None,
    }
    lines = warren(*command, "list", *at).stdout.splitlines()
    assert lines[1].split() == [
        "/", "nightly", "report", "0", "3", "*", "*", "*", "guest", "any", "-", "new",
    ]  # fmt: skip
    bad = warren(*command, "add", "--cron", "0 25 * * *", *at, "x", *job)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1) and "0 25 * * *" in bad.stderr
    assert warren(*command, "remove", "nightly", *at).returncode == 0
    gone = warren(*command, "remove", "nightly", *at)
    assert (gone.returncode, gone.stderr) == (1, "warren: there is no schedule 'nightly'\n")
    data = {"WARREN_DATA_DIR": str(node.node.config.data_dir)}
    runs = warren(*command, "runs", environment=data)
    assert runs.stdout.split() == ["run", "vhost", "job", "schedule", "state", "seconds", "reason"]
    local = warren(*command, "add", "--every", "60", "x", *job, environment=data)
    assert (local.returncode, local.stderr) == (2, "warren: name the user of the job with --as\n")


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (
            "archive a --queue x --queue y --format delta --follow --merge 5",
            {"target": "a", "queues": ["x", "y"], "format": "delta", "follow": True, "merge": 5},
        ),
        ("replay a b --rate 2", {"sources": ["a", "b"], "rate": 2.0}),
        ("verify a --damage d", {"directory": "a", "damage": "d"}),
    ],
)
def test_words_become_arguments(line: str, arguments: dict[str, object]) -> None:
    assert arguments_of(line.split()) == arguments


@pytest.mark.parametrize(
    "line",
    [
        "replay a --where true",
        "backup a --master local",
        "verify",
        "report --bogus",
        "rebuild-index a b",
    ],
)
def test_words_that_are_not_for_schedules(line: str) -> None:
    with pytest.raises(BadArguments):
        arguments_of(line.split())


def test_each_field_is_an_option_of_its_command(tmp_path: Path) -> None:
    """A job with all of its fields becomes words, from which the parser reads the same again."""
    places = JobsDirectory(tmp_path)
    (tmp_path / "there").mkdir()
    values = {
        "text": "t", "texts": ["a", "--b"], "number": 3, "decimal": 1.5, "source": "there",
        "sources": ["there"], "output": "-new",
    }  # fmt: skip
    for kind in KINDS:
        given = {
            field.name: field.choices[-1] if field.kind == "choice" else values.get(field.kind)
            for field in kind.fields
        }
        flags = {field.name: not field.default for field in kind.fields if field.kind == "flag"}
        found = words(kind, "/", {**given, **flags}, places, "run")
        own = [word for word in found if not word.startswith(("--snapshots", "--checkpoint"))]
        read = arguments_of(own)
        shown = {
            name: [_below(tmp_path, each) for each in value]
            if isinstance(value, list)
            else _below(tmp_path, value)
            for name, value in read.items()
        }
        assert shown == {**given, **flags}, kind.name


def _below(root: Path, value: object) -> object:
    return value.removeprefix(f"{root}/") if isinstance(value, str) else value
