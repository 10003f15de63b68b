"""Bodies that are too large for Spark, and what becomes of their messages.

Such a body can end a JVM with a 2 GiB heap in the middle of a write, permanently and without an
error. The option `largeBodies` says what happens instead: the read fails, the row has no body, or
the broker makes the message a dead letter when a batch of a stream is planned (`PlanRange`).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from warrenmq.spark.retry import SourceError

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Largest body (bytes) that a task hands to Spark.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024

FAIL: Final = "fail"
NULL: Final = "null"
DEAD_LETTER: Final = "deadLetter"
# Choices of a read that cannot reject messages; the first one is the default.
READ_CHOICES: Final = (FAIL, NULL)
STREAM_CHOICES: Final = (FAIL, NULL, DEAD_LETTER)
# The part of an error that names the other choices.
_REMEDIES: Final = {
    NULL: "largeBodies=null reads it without its body",
    DEAD_LETTER: "largeBodies=deadLetter rejects it",
}


def rejected_above(choice: str, columns: list[str]) -> int | None:
    """Above how many bytes a body makes its message a dead letter; None: it never does."""
    return BODY_BYTES_MAX if choice == DEAD_LETTER and "body" in columns else None


def usable(
    batches: Iterable["RecordBatch"], choice: str, choices: tuple[str, ...]
) -> Iterator["RecordBatch"]:
    """`batches` as Spark can take them: with NULL, a body that is too large is null.

    Raises SourceError for such a body with another choice; its text has the remedies of `choices`.
    """
    for batch in batches:
        place = batch.schema.get_field_index("body")
        if place >= 0 and batch.column(place).nbytes > BODY_BYTES_MAX:
            yield _without_large(batch, place, choice, choices)
        else:
            yield batch


def _without_large(
    batch: "RecordBatch", place: int, choice: str, choices: tuple[str, ...]
) -> "RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    bodies = batch.column(place)
    sizes = pc.binary_length(bodies)
    largest = pc.max(sizes).as_py()
    if largest <= BODY_BYTES_MAX:
        return batch
    if choice != NULL:
        remedies = [_REMEDIES[each] for each in choices if each in _REMEDIES]
        raise SourceError(
            f"a message of {largest} bytes is too large for Spark (limit {BODY_BYTES_MAX}): "
            f"{', '.join(remedies)}, includeBody=false leaves out all bodies"
        )
    kept = pc.if_else(pc.greater(sizes, BODY_BYTES_MAX), pa.scalar(None, bodies.type), bodies)
    return batch.set_column(place, batch.schema.field(place), kept)
