"""Lets Spark find the data source "warren_events"; pyspark_warren does so for "warren".

Like pyspark_warren, this package imports nothing heavy.
"""

from warrenmq.spark.telemetry.events import WarrenEventsDataSource as DefaultSource

__all__ = ["DefaultSource"]
