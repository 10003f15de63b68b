"""The log: rotation by size and date, levels of categories, JSON."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.options.log import LogOptions
from warrenmq.server.log.file import next_rotation
from warrenmq.server.log.output import log_files, open_log, rotate_log, set_log_level

CONNECTION = logging.getLogger("warren.connection")
NODE = logging.getLogger("warren.node")


@pytest.fixture(autouse=True)
def outputs_of_the_test_run() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    # `open_log` closes the outputs that it replaces, and those of the test run live on.
    root.handlers = []
    yield
    open_log(LogOptions(console=False))
    root.handlers = handlers
    root.setLevel(level)


def options(directory: Path, **changes: Any) -> LogOptions:
    return LogOptions(console=False, file=Path("w.log"), directory=directory)._replace(**changes)


def test_categories_have_levels_of_their_own(tmp_path: Path) -> None:
    levels = (("connection", "none"), ("default", "debug"))
    open_log(options(tmp_path, file_level="debug", levels=levels))
    CONNECTION.critical("a")
    NODE.debug("b %d", 1)
    assert log_files() == [str(tmp_path / "w.log")]
    assert (tmp_path / "w.log").read_text().endswith(" [DEBUG] warren.node: b 1\n")
    assert len((tmp_path / "w.log").read_text().splitlines()) == 1
    set_log_level("error")
    NODE.warning("c")
    CONNECTION.error("d")
    assert "warren.connection: d" in (tmp_path / "w.log").read_text().splitlines()[1]


def test_json_has_one_object_a_line_with_the_stack(tmp_path: Path) -> None:
    open_log(options(tmp_path, file_formatter="json"))
    try:
        raise ValueError("x")
    except ValueError:
        NODE.exception("it\nfailed")
    (line,) = (tmp_path / "w.log").read_text().splitlines()
    event = json.loads(line)
    assert (event["level"], event["msg"], event["domain"]) == ("error", "it\nfailed", "warren.node")
    assert event["exception"].endswith("ValueError: x")


def test_a_file_rotates_by_size_and_keeps_a_number_of_older_ones(tmp_path: Path) -> None:
    open_log(options(tmp_path, rotation_size=200, rotation_count=2))
    for number in range(20):
        NODE.info("line %d %s", number, "x" * 60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.log", "w.log.1", "w.log.2"]
    assert "line 19" in (tmp_path / "w.log").read_text()
    rotate_log()
    assert (tmp_path / "w.log").read_text() == ""
    assert "line 19" in (tmp_path / "w.log.1").read_text()


def test_a_file_without_older_ones_begins_anew(tmp_path: Path) -> None:
    open_log(options(tmp_path))
    NODE.info("before")
    rotate_log()
    NODE.info("after")
    assert [path.name for path in tmp_path.iterdir()] == ["w.log"]
    assert (tmp_path / "w.log").read_text().endswith("after\n")
    assert "before" not in (tmp_path / "w.log").read_text()


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        # Now is Wednesday, 25 November 2026, 10:30.
        ("$H", datetime(2026, 11, 25, 11, 0, tzinfo=UTC)),
        ("$H45", datetime(2026, 11, 25, 10, 45, tzinfo=UTC)),
        ("$D0", datetime(2026, 11, 26, 0, 0, tzinfo=UTC)),
        ("$D11", datetime(2026, 11, 25, 11, 0, tzinfo=UTC)),
        ("$W0", datetime(2026, 11, 29, 0, 0, tzinfo=UTC)),
        ("$W3D9", datetime(2026, 12, 2, 9, 0, tzinfo=UTC)),
        ("$M1", datetime(2026, 12, 1, 0, 0, tzinfo=UTC)),
        ("$M31D5", datetime(2026, 11, 30, 5, 0, tzinfo=UTC)),
    ],
)
def test_dates_of_rotation(date: str, expected: datetime) -> None:
    assert next_rotation(date, datetime(2026, 11, 25, 10, 30, tzinfo=UTC)) == expected


def test_a_file_that_cannot_be_opened_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    open_log(options(tmp_path))
    with pytest.raises(ConfigError, match=r"^log\.file: .*: Is a directory$"):
        open_log(options(tmp_path, file=tmp_path))
    NODE.info("still")
    assert "still" in (tmp_path / "w.log").read_text()


def test_a_full_disk_costs_lines_and_no_stack_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_log(options(tmp_path, file=Path("/dev/full")))
    NODE.info("lost")
    assert capsys.readouterr().err == ""
