"""What both readers do in a worker: fetch blocks of bounded size and make record batches of them."""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warren.spark.broker_link import SourceError
from warren.spark.options import SourceOptions

if TYPE_CHECKING:
    from warren.spark.arrow_batches import BatchBuilder

# One block is one record batch. The JVM fails on huge ones, and small ones cost a round trip each.
FETCH_MESSAGES: Final = 10_000
FETCH_BYTES: Final = 8 * 1024 * 1024
# A larger message in a batch can end a JVM with a 2 GiB heap in the middle of a write, for good and without a word.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024


def batch_builder(options: SourceOptions, schema: StructType) -> "BatchBuilder":
    """Builds record batches with exactly the Arrow schema that Spark expects for `schema`."""
    from warren.spark.arrow_batches import BatchBuilder

    return BatchBuilder(to_arrow_schema(schema, timezone="UTC"), options.vhost, options.queue)


def checked_batch(builder: "BatchBuilder", block: memoryview) -> Any:
    """The block as a record batch; SourceError when a message in it is too large for Spark."""
    batch = builder.build(block)
    # One that is too large comes alone: blocks are limited to FETCH_BYTES.
    if builder.needs_bodies and batch.num_rows == 1 and len(block) > BODY_BYTES_MAX:
        raise SourceError(
            f"a message of {len(block)} bytes is too large for Spark (limit {BODY_BYTES_MAX}): "
            "read it with a consumer, or leave bodies out (includeBody=false)"
        )
    return batch
