"""What is known of a file of messages (`data_files.py`), as JSON has it. Needs no Arrow."""

import msgspec


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one queue. `digest` in hexadecimal; seq ids inclusive."""

    queue_id: int
    rows: int
    first_seq: int
    last_seq: int
    digest: str


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is complete. `crc32c` in hexadecimal, of all its bytes."""

    name: str
    bytes: int
    crc32c: str
    rows: int
    queues: list[QueueRows] = []
