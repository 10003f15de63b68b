"""Lets Spark find the data source "warren_store"; pyspark_warren does so for "warren".

Each such package gives Spark one data source, so two sources need two packages. Like
pyspark_warren, this package imports nothing heavy.
"""

from warrenmq.spark.store_source import WarrenStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
