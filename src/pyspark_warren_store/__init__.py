"""Lets Spark find the data source "warren_store"; see pyspark_warren, which does so for "warren".

Each such package gives Spark one data source, hence there are two. As there, nothing heavy is imported.
"""

from warrenmq.spark.store_source import WarrenStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
