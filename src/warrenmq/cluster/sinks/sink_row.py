"""The row of a sink in the cluster, and each change of it.

A row has *copies* from the commit of a batch until all of its messages are in their queues: the
nodes that have the stages of the batch, with the ids of these, in the order of the commit. One of
the nodes is the mover, at first the first one. The messages of a sink have positions, which count
on from batch to batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from warrenmq.broker.definitions.metadata import MetadataDamaged, PutSink

# The nodes that have the stages of a batch, with the ids of the stages.
Copies = Mapping[bytes, list[int]]


class _Copy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: bytes
    stages: list[int]


_decoder: msgspec.json.Decoder[list[_Copy]] = msgspec.json.Decoder(list[_Copy])


def encode_copies(copies: Copies) -> bytes:
    """The copies of a row as bytes; b"" for none."""
    if not copies:
        return b""
    return msgspec.json.encode([_Copy(node, stages) for node, stages in copies.items()])


def copies_of(row: PutSink) -> dict[bytes, list[int]]:
    """The copies of a row. Raises MetadataDamaged."""
    if not row.copies:
        return {}
    try:
        return {copy.node: copy.stages for copy in _decoder.decode(row.copies)}
    except msgspec.DecodeError as error:
        raise MetadataDamaged(f"the copies of a sink are damaged: {error}") from None


def first_mover(copies: Copies) -> bytes:
    """The node that has committed the batch and was the first to publish it; b"" for no copies."""
    return next(iter(copies), b"")


def sink_key(row: PutSink) -> bytes:
    """The name of the sink's books of receipts: another one in each life of the sink."""
    return b"%s/%d" % (row.name, row.birth)


def parse_sink_key(key: bytes) -> tuple[bytes, int]:
    """The name and the birth in a key that `sink_key` has made. Raises ValueError for another."""
    name, _, birth = key.rpartition(b"/")
    return name, int(birth)


def committed(
    vhost: bytes,
    name: bytes,
    before: PutSink | None,
    batch: int,
    message_count: int,
    copies: Copies,
    mover: bytes,
) -> PutSink:
    """The row of a sink that has committed `batch`; None: it had no row before."""
    first, epoch = 0, 0
    if before is not None:
        first = before.before_first + before.message_count
        epoch = before.epoch
    return PutSink(
        vhost,
        name,
        batch,
        [],
        first,
        message_count,
        encode_copies(copies),
        mover if copies else b"",
        epoch + 1,
    )


def with_copies(row: PutSink, copies: Copies, mover: bytes) -> PutSink:
    """The row with other copies, moved by `mover`; without copies the batch is published."""
    return PutSink(
        row.vhost,
        row.name,
        row.batch,
        [],
        row.before_first,
        row.message_count,
        encode_copies(copies),
        mover if copies else b"",
        row.epoch + (1 if copies and mover != row.mover else 0),
        row.birth,
        row.revision,
    )


def without_node(row: PutSink, node: bytes) -> PutSink | None:
    """The row without the stages of `node`; None if it names none. Raises MetadataDamaged.

    If another node has to be the mover then, it is not the first of the copies, unless it has the
    only ones: so it does not pass for the first mover.
    """
    copies = copies_of(row)
    if node not in copies:
        return None
    del copies[node]
    mover = next(reversed(copies), b"") if row.mover == node else row.mover
    return with_copies(row, copies, mover)
