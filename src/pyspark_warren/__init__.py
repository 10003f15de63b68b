"""Lets Spark find the data source: it looks into every top-level package called pyspark_*.

Spark imports all of them at the first look-up, and an import error in one breaks all Python data sources, so nothing
heavy is imported here: the source imports pyarrow and numpy only when it reads.
"""

from warrenmq.spark.source import WarrenDataSource as DefaultSource

__all__ = ["DefaultSource"]
