"""Slices of a stream from the files of the node, by tasks that see its disk; the node's event loop is left alone.

The node names the files when a batch is planned (queues/segment_places.py). A task believes them only if they are of the
store that the node has: a machine may have a file of that name that belongs to another node. Whatever does not fit, a file
that is gone, short, damaged or of somebody else, is no error: the slice is fetched then.
"""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.admin.client import NodeAddress
from warrenmq.spark.options import ACCESS_AUTO, ACCESS_FILES, SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from warrenmq.tables.slice_files import SliceInFiles

# Of a block, as of any file of the store.
_STORE_ID: Final = slice(12, 28)


def wants_files(options: SourceOptions) -> bool:
    """Is it worth asking which files have a slice? `auto`: when the node is on this machine."""
    if options.access == ACCESS_AUTO:
        return is_this_machine(NodeAddress(options.uri).host)
    return options.access == ACCESS_FILES


def is_this_machine(host: str) -> bool:
    """Is `host` a name or an address of the machine this runs on?"""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # Only addresses of one's own can be bound to.
                probe.bind(address)
                return True
        except OSError:
            continue
    return False


def store_id_of(block: memoryview) -> bytes:
    """Which store the messages of a block are from."""
    return bytes(block[_STORE_ID])


class FileSlices:
    """Reads slices of the store `store_id` in a task."""

    def __init__(self, options: SourceOptions, schema: StructType, store_id: bytes) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._options = options
        self._store_id = store_id

    def read(self, queue: str, part: "SliceInFiles") -> Iterator["RecordBatch"] | None:
        """The messages of a slice; None when its files do not have exactly these."""
        from warrenmq.tables.slice_files import SliceReader

        options = self._options
        reader = SliceReader(
            self._schema, options.vhost, queue, options.is_verified, self._store_id
        )
        batches: list[Any] | None = reader.read(part)
        return None if batches is None else iter(batches)
