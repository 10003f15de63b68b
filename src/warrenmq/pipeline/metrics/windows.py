"""Windows of metrics: the aggregates of one figure of one object over a span of time."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The columns that name the figure of a window.
OBJECT_COLUMNS: Final = ("node", "vhost", "queue", "group", "metric")
# The columns of a window, in order.
WINDOW_COLUMNS: Final = (
    "start",
    "end",
    *OBJECT_COLUMNS,
    "samples",
    "minimum",
    "maximum",
    "mean",
    "last",
    "increase",
    "rate",
)


def windows_of(samples: "DataFrame", window_s: int, late_s: int) -> "DataFrame":
    """Windows of `window_s` seconds of a stream of "warren_metrics".

    A window is complete when a sample is `late_s` seconds past its end. `increase` is how much a
    counter has grown, `rate` that per second; both are null for levels.
    """
    from pyspark.sql import functions as f

    grown_in = f.when(f.col("increase").isNotNull(), f.col("seconds"))
    return (
        samples.withWatermark("time", f"{late_s} seconds")
        .groupBy(f.window("time", f"{window_s} seconds"), *OBJECT_COLUMNS)
        .agg(
            f.count("*").alias("samples"),
            f.min("value").alias("minimum"),
            f.max("value").alias("maximum"),
            f.avg("value").alias("mean"),
            f.max_by("value", "time").alias("last"),
            f.sum("increase").alias("increase"),
            f.sum(grown_in).alias("grown_in"),
        )
        .withColumn("start", f.col("window.start"))
        .withColumn("end", f.col("window.end"))
        .withColumn("rate", f.when(f.col("grown_in") > 0, f.col("increase") / f.col("grown_in")))
        .select(*WINDOW_COLUMNS)
    )
