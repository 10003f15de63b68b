"""The rows that definitions become in a node's own store, byte for byte as they are published."""

from pathlib import Path

from tests.broker.definitions.test_metadata_sqlite import EVERYTHING, ODD
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteGroupMember,
    DeleteQueue,
    DeleteReaderGroup,
    DeleteUser,
    DeleteVhost,
    PutExchange,
    PutGroupMember,
    PutPermission,
    PutQueue,
    PutQueuePart,
    PutReaderGroup,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata

GOLDEN = Path(__file__).with_name("stored_rows.sql")
# Writes anew, and deletions that take other rows with them.
LATER: list[Change] = [
    PutQueuePart(b"/", 3, 1, 7),
    PutQueuePart(b"/", 4, 9, 1 << 40),
    PutQueue(b"/", 1, b"renamed", True, False, b"", birth=3),
    PutExchange(b"/", ODD, b"fanout", False, True, b""),
    PutVhost(ODD, 2, "other", [], "", False),
    PutUser(b"u", b"hash", "", ["a", "b"]),
    PutPermission(b"/", b"u", "", "", ""),
    PutTopicPermission(b"/", b"u", b"x", "", ""),
    DeleteUser(b"u"),
    PutReaderGroup(b"/", b"h", 1, ""),
    PutGroupMember(b"/", b"h", 1, b"q", 1, 2, True),
    PutGroupMember(b"/", b"g", 6, b"s", 1, 2, False),
    DeleteGroupMember(b"/", b"g", 5),
    DeleteReaderGroup(b"/", b"h"),
    PutQueue(b"/", 9, b"with parts", True, False, b""),
    DeleteQueue(b"/", 9),
    PutVhost(b"gone", 3),
    PutQueue(b"gone", 12, b"q", True, False, b""),
    PutPermission(b"gone", b"guest", "", "", ""),
    DeleteVhost(b"gone"),
    DeleteQueue(b"/", 1 << 61),
]


def test_rows_and_schema_stay_as_they_are_published(tmp_path: Path) -> None:
    """An older node reads what this one has written, and the other way round."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    metadata.apply(EVERYTHING)
    metadata.apply(LATER)
    stored = "\n".join(metadata._connection.iterdump()) + "\n"
    metadata.close()
    assert stored == GOLDEN.read_text(encoding="utf-8")
