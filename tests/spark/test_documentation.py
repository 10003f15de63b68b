"""The pages of docs/spark/ list each option, column and error of the code, and their blocks run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.support.brokers.process import BrokerProcess
from warrenmq.spark.amqp.options import AMQP_COMMON_OPTIONS, AMQP_SINK_OPTIONS, AMQP_STREAM_OPTIONS
from warrenmq.spark.columns import COLUMNS
from warrenmq.spark.kafka_names import COLUMNS_INSTEAD, OPTIONS_INSTEAD, OPTIONS_WITHOUT
from warrenmq.spark.options import BATCH_OPTIONS, COMMON_OPTIONS, STREAM_OPTIONS
from warrenmq.spark.sinks.columns import SINK_COLUMNS
from warrenmq.spark.sinks.options import SINK_OPTIONS
from warrenmq.spark.store_options import TABLE_OPTIONS
from warrenmq.spark.telemetry.event_columns import EVENT_COLUMNS
from warrenmq.spark.telemetry.event_options import EVENT_OPTIONS
from warrenmq.spark.telemetry.metric_columns import METRIC_COLUMNS, METRICS, SAMPLES_LOST
from warrenmq.spark.telemetry.metric_options import METRIC_OPTIONS, METRIC_STREAM_OPTIONS
from warrenmq.tables.schemas import COLUMNS as STORE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "spark"
# Pages with blocks, in the order of the site's menu. The first one defines the names that the
# others use.
PAGES_WITH_BLOCKS = (
    "index.md",
    "tables.md",
    "streams.md",
    "analytics.md",
    "writing.md",
    "other-brokers.md",
    "store.md",
    "archive.md",
    "jobs.md",
    "telemetry.md",
    "errors.md",
    "from-kafka.md",
)


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of a page, cell by cell."""
    section = (PAGES / page).read_text().split(f"\n## {heading}\n")[1]
    section = re.split("\n##+ ", section)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r" \| ", line.strip("| "))] for line in lines]


def test_every_option_is_documented_with_where_it_counts() -> None:
    """No more and no fewer than the source takes."""
    documented = {
        name.strip("`"): row[1]
        for row in rows("options.md", "Options")
        for name in row[0].split(", ")
    }
    assert documented == (
        dict.fromkeys(COMMON_OPTIONS, "both")
        | dict.fromkeys(STREAM_OPTIONS, "stream")
        | dict.fromkeys(BATCH_OPTIONS, "batch")
    )


def test_every_option_of_writing_is_documented() -> None:
    """The page lists exactly the options that the sink takes."""
    assert [row[0].strip("`") for row in rows("writing.md", "Write options")] == list(SINK_OPTIONS)


def test_every_error_that_is_explained_is_one_that_can_come() -> None:
    """Each error on the page is in the code word by word, except for numbers and names.

    The page also explains each text of data loss.
    """
    source = ROOT / "src" / "warrenmq"
    files = [
        *(source / "spark").rglob("*.py"),
        *(source / "queues/readers").glob("group*.py"),
        source / "admin/client/client.py",
        source / "admin/readers/calls.py",
    ]
    # Join texts that consist of several adjacent literals.
    code = re.sub(r'"\s+f?"', "", "\n".join(path.read_text() for path in files))
    explained = [row[0].strip("`") for row in rows("errors.md", "What an error means")]
    assert len(explained) > 10
    for text in explained:
        if "Python worker" in text:
            # An error of Spark's own.
            continue
        # These words are put before a text.
        bare = text.removeprefix("data loss: ").removeprefix("waiting for ")
        parts = [re.escape(part) for part in re.split(r"\bN\b", bare)]
        if "(retryTimeoutMs)" in text or "(confirmTimeoutMs)" in text:
            parts[-1] = parts[-1].replace("retryTimeoutMs", ".*")
            parts[-1] = parts[-1].replace("confirmTimeoutMs", ".*")
        assert re.search(r"'?[{%][^\n]*?".join(parts), code), text


def test_every_column_is_documented_with_its_type() -> None:
    """The page lists the columns of a read in their order."""
    documented = [(row[0].strip("`"), row[1]) for row in rows("options.md", "Columns")]
    assert documented == [(name, kind.simpleString()) for name, kind in COLUMNS.items()]


def test_every_option_for_other_brokers_is_documented() -> None:
    """The page lists exactly the options that source and sink take, in their order."""
    documented = [
        (row[0].strip("`"), row[1]) for row in rows("other-brokers.md", "Options for other brokers")
    ]
    expected = [(name, "both") for name in AMQP_COMMON_OPTIONS]
    expected += [(name, "reading") for name in AMQP_STREAM_OPTIONS]
    assert documented == expected + [(name, "writing") for name in AMQP_SINK_OPTIONS]


def test_every_column_that_is_written_is_documented() -> None:
    """The page names every column that can be written."""
    page = (PAGES / "other-brokers.md").read_text()
    sentence = page.split("**Columns that are written** are ")[1].split(". ")[0]
    assert re.findall("`([a-z_]+)`", sentence) == list(SINK_COLUMNS)


def test_every_option_of_kafka_is_documented_with_what_is_here_instead() -> None:
    """The page names the first option that an error proposes, and those that have the same name."""
    documented = {
        name.lower(): row[1].strip("`")
        for row in rows("from-kafka.md", "Options")
        for name in re.findall("`([A-Za-z.]+)`", row[0])
    }
    for name in [name for name, instead in documented.items() if instead == "the same"]:
        assert name in map(str.lower, COMMON_OPTIONS + STREAM_OPTIONS + BATCH_OPTIONS)
        del documented[name]
    expected = {name: instead[0] for name, instead in OPTIONS_INSTEAD.items()}
    # What people write, though Kafka's source has no such option.
    del expected["groupid"], expected["group.id"]
    assert documented == expected | dict.fromkeys(OPTIONS_WITHOUT, "none")


def test_every_column_of_kafka_is_documented_with_what_is_here_instead() -> None:
    """The page names a column of reading, and for writing the one that an error proposes."""
    documented = {row[0].strip("`"): row[1:] for row in rows("from-kafka.md", "Columns")}
    assert {row[0].strip("`") for row in documented.values()} - {"none"} <= set(COLUMNS)
    for name, instead in COLUMNS_INSTEAD.items():
        assert f"`{instead}`" in " ".join(documented[name])


def test_every_option_of_a_store_is_documented_with_its_tables() -> None:
    """No more and no fewer than the source takes."""
    documented = {
        name.strip("`"): row[1]
        for row in rows("store.md", "Store options")
        for name in row[0].split(", ")
    }
    expected = {"path": "all", "table": "all"}
    for name in dict.fromkeys(name for names in TABLE_OPTIONS.values() for name in names):
        tables = [table for table, names in TABLE_OPTIONS.items() if name in names]
        expected[name] = "all" if len(tables) == len(TABLE_OPTIONS) else ", ".join(tables)
    assert documented == expected


def test_every_table_is_documented_with_its_columns() -> None:
    """The page lists the columns of each table; of messages those that format "warren" lacks."""
    documented = {
        row[0].strip("`"): re.findall("`([a-z_]+)`", row[2])
        for row in rows("store.md", "Store tables")
    }
    expected = {table: list(columns) for table, columns in STORE_COLUMNS.items()}
    expected["messages"] = [name for name in expected["messages"] if name not in COLUMNS]
    assert documented == expected


def test_options_and_columns_of_telemetry_are_documented() -> None:
    """No more and no fewer than the sources have; metrics but for the buckets of syncs."""
    page = "telemetry.md"
    assert [row[0].strip("`") for row in rows(page, "Event options")] == list(EVENT_OPTIONS)
    options = {row[0].strip("`"): row[1] for row in rows(page, "Metric options")}
    assert options == {
        name: "stream" if name in METRIC_STREAM_OPTIONS else "both" for name in METRIC_OPTIONS
    }
    for heading, columns in (("Event columns", EVENT_COLUMNS), ("Metric columns", METRIC_COLUMNS)):
        documented = [(row[0].strip("`"), row[1]) for row in rows(page, heading)]
        assert documented == [(name, kind.simpleString()) for name, kind in columns.items()]
    section = (
        (PAGES / page).read_text().split("\n## Metrics of each object\n")[1].split("\nOf the ")[0]
    )
    documented_metrics = set(re.findall("`([a-z_]+)`", section))
    expected = {name for name in METRICS if not re.fullmatch("syncs_(to_[0-9]+|beyond)", name)}
    assert documented_metrics == expected | {SAMPLES_LOST}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_block_runs(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page after page, as in a notebook; a page may use the names of the first page alone."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    monkeypatch.setenv("WARREN_URI", broker.uri)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first_names: dict[str, object] = {"__name__": "walk"}
    try:
        for name in PAGES_WITH_BLOCKS:
            names = first_names if name == PAGES_WITH_BLOCKS[0] else dict(first_names)
            run_blocks(PAGES / name, names)
    finally:
        broker.kill()


def run_blocks(page: Path, names: dict[str, object]) -> None:
    text = page.read_text()
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        # Blank lines in front: errors name the line of the page.
        lines_before = text[: block.start(1)].count("\n")
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), names)


def test_every_page_with_blocks_is_run() -> None:
    with_blocks = [path.name for path in PAGES.iterdir() if "```python" in path.read_text()]
    assert sorted(with_blocks) == sorted(PAGES_WITH_BLOCKS)
