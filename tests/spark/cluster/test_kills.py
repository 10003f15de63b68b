"""A real Spark writes into a cluster whose nodes are killed."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.cluster.sink_kills import ENTRY, MOVER, execute_run
from tests.support.etcd import require_etcd
from warrenmq.spark import SparkUnavailableError
from warrenmq.spark.local.java import require_spark


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_row_is_in_a_queue_once_whichever_node_dies(tmp_path: Path) -> None:
    require_etcd()
    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    result = execute_run(1, tmp_path, [ENTRY, MOVER])
    assert result.messages >= 3000
