"""Request and reply of the admin protocol for the samples of its figures that a node keeps.

A node that was asked for samples takes one every few seconds, all nodes of a cluster at the same
times, and keeps those of the last KEPT_MS as far as SAMPLES_BYTES_MAX allow. It stops when nobody
has asked for that long. A sample has the figures of all objects, whether they have changed or not.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from warrenmq.admin.protocol.changes import COUNTERS, LEVELS, NODE, QUEUE

# The part of a reader group in a queue, as a kind of object beside NODE and QUEUE.
GROUP: Final = "group"
# The names of an object's `counters`, which only grow, in order.
SAMPLED_COUNTERS: Final = {NODE: COUNTERS[NODE], QUEUE: COUNTERS[QUEUE], GROUP: ()}
# The names of an object's `levels`, in order. Those of a group are messages reserved, messages not
# acked, and the age of the oldest of these (ms), -1 while that is unknown.
SAMPLED_LEVELS: Final = {
    NODE: LEVELS[NODE],
    QUEUE: LEVELS[QUEUE],
    GROUP: ("reserved", "lag", "lag_ms"),
}

# How long a node keeps samples, and how long it takes them unasked (ms).
KEPT_MS: Final = 3_600_000
# About the most memory that samples take (bytes).
SAMPLES_BYTES_MAX: Final = 64 * 1024 * 1024
# Most objects in one reply.
OBJECTS_MAX: Final = 1000

# Milliseconds since 1970.
TimeMs = Annotated[int, Meta(ge=0, le=1 << 62)]


class ReadSamples(Struct, tag="read_samples", forbid_unknown_fields=True, frozen=True):
    """Samples taken after `after_ms`, up to `upto_ms`, the oldest first. Reply: Samples.

    `skip`: objects of the first of them that the caller has already. With `is_fresh` the node takes
    a sample first; one that has none takes its first one in any case.
    """

    # The node that is asked, "": that of the session. Refused (`unreachable`) without a link to it.
    node: Annotated[str, Meta(max_length=255)] = ""
    after_ms: TimeMs = 0
    upto_ms: TimeMs = 0
    skip: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    is_fresh: bool = False


class SampledObject(Struct, frozen=True, array_like=True):
    """The figures of one object: of the node, or of a queue, or of a group in a queue.

    `increases`: of the counters since the sample before, None where that is not known.
    """

    kind: str
    vhost: str
    name: str
    group: str
    counters: list[int]
    levels: list[int]
    increases: list[int] | None


class Sample(Struct, frozen=True):
    """Objects of the sample taken at `at_ms`; the one before was taken at `before_ms`, 0: none."""

    at_ms: int
    before_ms: int
    objects: list[SampledObject]


class Samples(Struct, tag="samples", frozen=True):
    """Samples of `node`, which has those from `first_ms` to `last_ms` and takes one each interval.

    With `has_more` the last of `samples` has more objects, or there are more samples: the next
    request begins after `next_after_ms` with `next_skip`. `nodes`: the running nodes of the
    cluster, this one included.
    """

    node: str
    nodes: list[str]
    now_ms: int
    interval_ms: int
    first_ms: int
    last_ms: int
    samples: list[Sample]
    has_more: bool
    next_after_ms: int
    next_skip: int
