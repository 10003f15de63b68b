"""Lets tasks that see the node's disk read slices of a stream from files, without its event loop.

The node names the files when a batch is planned (queues/readers/segment_places.py). A task uses a
file only if it carries the id of the node's store, because a machine may have a file of the same
name that belongs to another node. A file that is gone, short, damaged or foreign is no error: the
task then fetches the slice over the network.
"""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.admin.client.client import NodeAddress
from warrenmq.spark.options import ACCESS_AUTO, ACCESS_FILES, SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from warrenmq.tables.slice_files import SliceInFiles

# Where the store id stands in the header of a block, and of every file of a store.
_STORE_ID: Final = slice(12, 28)


def wants_files(options: SourceOptions, host: str | None) -> bool:
    """Whether to ask the node which files have a slice; `auto`: when it runs on this machine.

    `host`: the node's; None for the node of the options.
    """
    if options.access == ACCESS_AUTO:
        return is_this_machine(host or NodeAddress(options.uri).host)
    return options.access == ACCESS_FILES


def is_this_machine(host: str) -> bool:
    """Whether `host` is a name or an address of the machine that this process runs on."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # A socket can bind only to an address of its own machine.
                probe.bind(address)
                return True
        except OSError:
            continue
    return False


def store_id_of(block: memoryview) -> bytes:
    """The id of the store that the messages of a block come from."""
    return bytes(block[_STORE_ID])


class FileSlices:
    """Reads slices from the files of the store `store_id`, in a task."""

    def __init__(self, options: SourceOptions, schema: StructType, store_id: bytes) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._options = options
        self._store_id = store_id

    def read(self, queue: str, part: "SliceInFiles") -> Iterator["RecordBatch"] | None:
        """The messages of a slice; None when its files do not have exactly these messages."""
        from warrenmq.tables.slice_files import SliceReader

        options = self._options
        reader = SliceReader(
            self._schema, options.vhost, queue, options.is_verified, self._store_id
        )
        return reader.read(part)
