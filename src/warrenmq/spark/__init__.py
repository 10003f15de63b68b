"""Queues as Spark tables: the data source "warren" and a Spark session to use it in.

- `source.py` is the data source "warren"; `streams/reader.py` and `batch_reader.py` read for it.
- `streams/group_session.py` talks to the broker about the reader group of a stream.
- `sinks/sink.py` writes; `sinks/blocks.py` and `sinks/columns.py` turn rows into messages.
- `amqp/` reads from and writes to brokers of other kinds.
- `store_source.py` is the data source "warren_store": the files of a store.
- `telemetry/` has the data sources "warren_events" and "warren_metrics".
- `local/java.py` and `local/session.py` start Spark; `streams/lag.py` reports how far behind a
  stream is, and `reason.py` why it has failed.

The package needs the extra `warrenmq[spark]`. Importing the package imports neither pyspark nor
pyarrow. Only `pipeline/` and the command line import it; the broker does not. See docs/spark/.
"""

from warrenmq.spark.local.java import SparkUnavailableError
from warrenmq.spark.local.session import session
from warrenmq.spark.node_snapshot import node_snapshot
from warrenmq.spark.reason import reason_of
from warrenmq.spark.streams.lag import SourceLag, lag_of

__all__ = ["SourceLag", "SparkUnavailableError", "lag_of", "node_snapshot", "reason_of", "session"]
