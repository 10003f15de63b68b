"""The figures of a file of messages (`data_files.py`), as JSON has them. Needs no Arrow."""

import msgspec


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one queue; `digest` is hexadecimal, both seq ids are inclusive."""

    queue_id: int
    rows: int
    first_seq: int
    last_seq: int
    digest: str


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A complete file; `crc32c` is the checksum of all its bytes, in hexadecimal."""

    name: str
    bytes: int
    crc32c: str
    rows: int
    queues: list[QueueRows] = []
