"""Tests writing with a real Spark and a real broker, under kills."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.sink_kills import execute_run
from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.local.java import require_spark


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_row_is_written_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    result = execute_run(seed, tmp_path)
    assert len(result.kills) >= 3
    assert result.messages >= 1000 * len(result.kills)
