"""The tables of a store and their columns."""

from typing import Any, Final

import pyarrow as pa

from warrenmq.tables.columns import MESSAGE_COLUMNS, TIMESTAMP

MESSAGES: Final = "messages"
POSITIONS: Final = "positions"
FILES: Final = "files"
JOURNAL: Final = "journal"
METADATA: Final = "metadata"
DAMAGE: Final = "damage"

_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()
_FLAG: Final = pa.bool_()

# Columns that make a message exact, byte for byte. A read has them only when its schema names them.
EXACT_COLUMNS: Final[dict[str, Any]] = {
    "queue_id": _NUMBER,
    # Names that are not UTF-8; null where the text column has the exact name.
    "exchange_raw": pa.binary(),
    "routing_key_raw": pa.binary(),
    "properties_raw": pa.binary(),
    # Id of a large message's content. Positions with the same id share the content; at first as
    # many as `references`.
    "content_id": _NUMBER,
    "references": pa.int32(),
    # CRC-32C of address, properties and body, encoded as in a record.
    "checksum": _NUMBER,
}

COLUMNS: Final[dict[str, dict[str, Any]]] = {
    # `file`, `offset` and `stored_bytes` say where the record with the content is: in the journal,
    # the index or a content file.
    MESSAGES: {
        **MESSAGE_COLUMNS,
        "file": _TEXT,
        "offset": _NUMBER,
        "stored_bytes": _NUMBER,
        "crc_ok": _FLAG,
        **EXACT_COLUMNS,
    },
    POSITIONS: {
        "vhost": _TEXT,
        "queue": _TEXT,
        "queue_id": _NUMBER,
        "seq": _NUMBER,
        "state": _TEXT,
        "location": _TEXT,
        "file": _TEXT,
        "offset": _NUMBER,
        "record_bytes": _NUMBER,
        "persistent": _FLAG,
        "enqueued_at": TIMESTAMP,
        "expires_at": TIMESTAMP,
        "size": pa.int32(),
        "stored": _FLAG,
        "content_id": _NUMBER,
        "content_file": _TEXT,
        "content_offset": _NUMBER,
        "content_bytes": _NUMBER,
        "references": pa.int32(),
    },
    FILES: {
        "vhost": _TEXT,
        "path": _TEXT,
        "kind": _TEXT,
        "bytes": _NUMBER,
        "live_bytes": _NUMBER,
        "garbage_bytes": _NUMBER,
        "records": _NUMBER,
    },
    JOURNAL: {
        "vhost": _TEXT,
        "file": _TEXT,
        "offset": _NUMBER,
        "stored_bytes": _NUMBER,
        "kind": _TEXT,
        "crc_ok": _FLAG,
        "queue_id": _NUMBER,
        "first_seq": _NUMBER,
        "last_seq": _NUMBER,
        "positions": _NUMBER,
        "enqueued_at": TIMESTAMP,
        "size": pa.int32(),
        "content_id": _NUMBER,
    },
    METADATA: {"kind": _TEXT, "vhost": _TEXT, "name": _TEXT, "json": _TEXT},
    DAMAGE: {"vhost": _TEXT, "file": _TEXT, "offset": _NUMBER, "length": _NUMBER, "reason": _TEXT},
}


def schema_of(table: str) -> Any:
    """All columns of a table, as an Arrow schema."""
    return pa.schema(list(COLUMNS[table].items()))
