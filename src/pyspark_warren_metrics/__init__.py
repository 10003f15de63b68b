"""Lets Spark find the data source "warren_metrics"; pyspark_warren does so for "warren".

Like pyspark_warren, this package imports nothing heavy.
"""

from warrenmq.spark.telemetry.metrics import WarrenMetricsDataSource as DefaultSource

__all__ = ["DefaultSource"]
