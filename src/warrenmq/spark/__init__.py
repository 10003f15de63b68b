"""Queues as tables of Spark: the data source "warren" and a session to use it in.

`source.py` is the data source "warren", `stream_reader.py` and `batch_reader.py` its two ways to read, `group_session.py` a
stream's hold on its reader group; `amqp/` has what is for brokers of other kinds; `store_source.py` is
"warren_store", the files of a store; `java.py` and `local_session.py` start Spark, `lag.py` says how far behind a stream is. Needs the extra `warren[spark]`; nothing
else of warren imports it, and importing this package imports neither pyspark nor pyarrow. See docs/spark.md.
"""

from warrenmq.spark.java import SparkUnavailableError
from warrenmq.spark.lag import SourceLag, lag_of
from warrenmq.spark.local_session import session
from warrenmq.spark.node_snapshot import node_snapshot

__all__ = ["SourceLag", "SparkUnavailableError", "lag_of", "node_snapshot", "session"]
