"""Lets Spark find the data source "warren": Spark searches all top-level packages named pyspark_*.

Spark imports all of these packages at the first look-up, and an import error in one of them breaks
every Python data source. This package therefore imports nothing heavy: the source imports pyarrow
and numpy only when it reads.
"""

from warrenmq.spark.source import WarrenDataSource as DefaultSource

__all__ = ["DefaultSource"]
