"""Tests the one line that warren finds in the text of an error of Spark."""

import pytest

from warrenmq.spark import reason_of

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "x.py", line 3, in read\n'
    "warrenmq.spark.retry.SourceError: no queue 'q' in vhost '/'\n SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nLogical Plan:\nWriteToMicroBatchDataSource noop-table"
)
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FAILED + TRACEBACK, "no queue 'q' in vhost '/'"),
        (
            TRACEBACK + "\nDuring handling of the above exception, another exception occurred:\n"
            "warrenmq.spark.options.OptionError: option 'uri' is missing\n",
            "option 'uri' is missing",
        ),
        (FAILED + "[DIVIDE_BY_ZERO] Division by zero.\nmore", "[DIVIDE_BY_ZERO] Division by zero."),
        (
            "An error occurred while calling o7.parquet.\n: org.apache.spark.SparkException: [FAILED_READ] x\n\tat a",
            "[FAILED_READ] x",
        ),
        (
            "\n[PATH_NOT_FOUND] Path does not exist: file:/x.\nmore",
            "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        ),
        ("", "Spark failed without an error message"),
    ],
)
def test_the_reason_is_the_line_of_warren_else_the_first_line(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason
