"""The job `archive` refuses impossible arguments, and derives its group from the target."""

from pathlib import Path

import pytest

from warrenmq.pipeline import JobError, archive
from warrenmq.pipeline.archives.job import default_group
from warrenmq.pipeline.places import place_of

URI = "amqp://guest:guest@127.0.0.1:1/"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "name the queues, or a pattern"),
        ({"queues": ["q"], "pattern": ".*"}, "name the queues, or a pattern"),
        ({"queues": ["q"], "uri": "http://x"}, "uri: "),
        ({"queues": ["q"], "max_messages": 0}, "must be positive"),
        ({"queues": ["q"], "merge_bytes": -1}, "must be positive"),
        ({"queues": ["q"], "interval_s": float("inf")}, "number of seconds"),
        ({"queues": ["q"], "interval_s": float("nan")}, "number of seconds"),
        ({"queues": ["q"], "group": "not good"}, "option 'group'"),
        ({"queues": ["q", "q"]}, "names a queue twice"),
        ({"pattern": "("}, "no regular expression"),
        ({"queues": ["q"], "checkpoint": "CHECKPOINT"}, "must be outside of"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    arguments: dict[str, object], text: str, tmp_path: Path
) -> None:
    """Impossible arguments give one line before Spark starts, and create nothing."""
    if "checkpoint" in arguments:
        arguments = arguments | {"checkpoint": tmp_path / "target/checkpoint"}
    with pytest.raises(JobError, match=text):
        archive(tmp_path / "target", **({"uri": URI} | arguments))  # type: ignore[arg-type]  # a mixed bag
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_place_for_an_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target, checkpoint in (("file", "checkpoint"), ("target", "file")):
        with pytest.raises(JobError, match="file is no directory"):
            archive(tmp_path / target, uri=URI, queues=["q"], checkpoint=tmp_path / checkpoint)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_default_group_belongs_to_the_place() -> None:
    """The default group depends on the whole path of the target, and is a valid group name."""
    assert default_group(place_of(Path("/a/b c/orders ü"))) == default_group(
        place_of(Path("/a/b c/orders ü"))
    )
    assert default_group(place_of(Path("/a/orders"))) != default_group(place_of(Path("/b/orders")))
    assert default_group(place_of(Path("/a/orders ü"))).startswith("archive-orders__-")
