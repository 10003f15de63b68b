"""Definitions in SQLite: changes are loaded again, all or nothing; damage differs from failure."""

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteBinding,
    DeleteExchange,
    DeleteGroupMember,
    DeleteParameter,
    DeletePermission,
    DeleteQueue,
    DeleteQueuePart,
    DeleteReaderGroup,
    DeleteReceipts,
    DeleteSink,
    DeleteStage,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    MetadataDamaged,
    MetadataError,
    PutBinding,
    PutExchange,
    PutGroupMember,
    PutParameter,
    PutPermission,
    PutQueue,
    PutQueuePart,
    PutReaderGroup,
    PutReceipts,
    PutSink,
    PutStage,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata

ODD = b"\x00'\xff;--"
EVERYTHING: list[Change] = [
    PutVhost(b"/", 1),
    PutVhost(ODD, 2, "a 'vhost'", ["x", "y"], "classic", True),
    PutUser(b"guest", ODD, "rabbit_password_hashing_sha256", ["administrator", "b\u00e4r"]),
    PutUser(ODD, b"", "", [], 0, 1 << 40),
    PutPermission(b"/", b"guest", ".*", "^$", "a'b"),
    PutTopicPermission(b"/", b"guest", ODD, "^a\\.", ""),
    PutParameter(b"/", "policy", "p", '{"pattern":"^a"}'),
    PutParameter(b"", "", "global", "17"),
    PutExchange(b"/", ODD, b"topic", True, False, ODD),
    PutExchange(b"/", b"x", b"direct", False, True, b""),
    PutQueue(b"/", 1, ODD, True, False, ODD),
    PutQueue(b"/", 1 << 60, b"q", True, True, b"", birth=1 << 62),
    PutBinding(b"/", b"x", b"q", True, b"k", b""),
    PutBinding(b"/", b"x", b"q", False, b"k", ODD),
    PutReaderGroup(b"/", b"g", 3, "o.*"),
    PutGroupMember(b"/", b"g", 1 << 60, b"q", 17, 1 << 62, False),
    PutGroupMember(b"/", b"g", 5, b"r", 1, 2, True),
    PutStage(b"/", 2, b"s", 7, 1000, 3, 1, b"\x00\x01k", ODD),
    PutSink(b"/", b"s", 7, [2, 3]),
    PutReceipts(b"/", 8, ODD, 0, 17, [20, 20, 30, 1 << 60], []),
    PutReceipts(b"/", 9, b"s", 1 << 60, 1, [], [4, 5]),
]


def attributes(change: Change) -> tuple[object, ...]:
    names = [name for name in dir(change) if not name.startswith("_")]
    return type(change).__name__, *[(name, getattr(change, name)) for name in names]


def listed(definitions: Definitions) -> list[tuple[object, ...]]:
    changes: list[Change] = [
        *definitions.vhosts, *definitions.users, *definitions.permissions, *definitions.topic_permissions,
        *definitions.parameters, *definitions.exchanges,
        *definitions.queues, *definitions.queue_parts, *definitions.bindings, *definitions.reader_groups, *definitions.group_members,
        *definitions.stages, *definitions.sinks, *definitions.receipts,
    ]  # fmt: skip
    return [attributes(change) for change in changes]


def loaded(path: Path) -> list[tuple[object, ...]]:
    metadata = SqliteMetadata(path)
    try:
        return listed(metadata.load())
    finally:
        metadata.close()


def test_metadata_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Definitions of every kind, with any bytes, are loaded in order with their types."""
    path = tmp_path / "node.sqlite"
    metadata = SqliteMetadata(path)
    assert listed(metadata.load()) == []
    metadata.apply(EVERYTHING)
    metadata.apply([])
    assert listed(metadata.load()) == [attributes(change) for change in EVERYTHING]
    metadata.close()
    assert loaded(path) == [attributes(change) for change in EVERYTHING]


def test_metadata_is_durable_before_it_is_closed(tmp_path: Path) -> None:
    """A copy of the files after `apply` has the changes, as after a crash."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    for count in range(1, len(EVERYTHING) + 1):
        metadata.apply(EVERYTHING[count - 1 : count])
        crashed = tmp_path / f"crash{count}"
        crashed.mkdir()
        for file in tmp_path.glob("node.sqlite*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, crashed)
        assert loaded(crashed / "node.sqlite") == [
            attributes(change) for change in EVERYTHING[:count]
        ]
    metadata.close()


def test_metadata_is_synced_with_each_commit(tmp_path: Path) -> None:
    """SQLite syncs its write-ahead log at every commit: `synchronous` is FULL (2).

    OFF and NORMAL do not sync at commits.
    """
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    connection = metadata._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    metadata.close()


def test_metadata_put_replaces_and_delete_removes(tmp_path: Path) -> None:
    """A put replaces by name or id and a delete removes, in order; a missing target is no error."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    metadata.apply(EVERYTHING)
    metadata.apply(
        [
            PutUser(b"guest", b"new", "h", []),
            PutPermission(b"/", b"guest", "c", "w", "r"),
            PutExchange(b"/", b"x", b"fanout", True, True, ODD),
            PutReaderGroup(b"/", b"g", 4, ""),
            PutGroupMember(b"/", b"g", 1 << 60, b"q", 18, 19, True),
            DeleteGroupMember(b"/", b"g", 5),
            PutBinding(b"/", b"x", b"q", True, b"k", b""),
            DeleteExchange(b"/", ODD),
            DeleteExchange(b"other", b"x"),
            DeleteQueue(b"/", 1),
            DeleteQueue(b"/", 99),
            PutQueue(b"/", 2, ODD, True, True, b""),
            PutQueue(b"/", 1 << 60, b"q", True, True, b"", birth=3),
            DeleteBinding(b"/", b"x", b"q", False, b"k", ODD),
            DeleteBinding(b"/", b"x", b"q", True, b"k", ODD),
            PutReaderGroup(b"/", b"h", 1, ""),
            PutGroupMember(b"/", b"h", 1, b"q", 1, 1, False),
            DeleteReaderGroup(b"/", b"h"),
            PutStage(b"/", 3, b"t", 1, 0, 0, 0, b"", b""),
            PutStage(b"/", 3, b"t", 1, 2000, 9, 0, b"", b"q"),
            DeleteStage(b"/", 2),
            PutSink(b"/", b"t", 1, [3]),
            DeleteSink(b"/", b"s"),
            PutReceipts(b"/", 8, ODD, 0, 21, [], []),
            DeleteReceipts(b"/", 9),
            PutVhost(b"/", 1, "new", [], "", True),
            PutVhost(b"gone", 9),
            PutQueue(b"gone", 4, b"q", True, False, b""),
            PutReceipts(b"gone", 5, b"s", 0, 1, [], []),
            PutPermission(b"gone", b"guest", "", "", ""),
            PutParameter(b"gone", "policy", "p", "{}"),
            DeleteVhost(b"gone"),
            PutUser(b"left", b"h", "", []),
            PutPermission(b"/", b"left", "", "", ""),
            PutTopicPermission(b"/", b"left", b"amq.topic", "", ""),
            DeleteUser(b"left"),
            PutPermission(ODD, b"guest", "", "", ""),
            DeletePermission(ODD, b"guest"),
            PutTopicPermission(b"/", b"guest", ODD, "new", "n"),
            PutTopicPermission(b"/", b"guest", b"amq.topic", "", ""),
            DeleteTopicPermission(b"/", b"guest", b"amq.topic"),
            PutParameter(b"/", "policy", "p", "{}"),
            PutParameter(b"", "", "other", "1"),
            DeleteParameter(b"", "", "other"),
        ]
    )
    expected: list[Change] = [
        PutVhost(b"/", 1, "new", [], "", True),
        PutVhost(ODD, 2, "a 'vhost'", ["x", "y"], "classic", True),
        PutUser(b"guest", b"new", "h", []),
        PutUser(ODD, b"", "", [], 0, 1 << 40),
        PutPermission(b"/", b"guest", "c", "w", "r"),
        PutTopicPermission(b"/", b"guest", ODD, "new", "n"),
        PutParameter(b"/", "policy", "p", "{}"),
        PutParameter(b"", "", "global", "17"),
        PutExchange(b"/", b"x", b"fanout", True, True, ODD),
        PutQueue(b"/", 1 << 60, b"q", True, True, b"", birth=3),
        PutQueue(b"/", 2, ODD, True, True, b""),
        PutBinding(b"/", b"x", b"q", True, b"k", b""),
        PutReaderGroup(b"/", b"g", 4, ""),
        PutGroupMember(b"/", b"g", 1 << 60, b"q", 18, 19, True),
        PutStage(b"/", 3, b"t", 1, 2000, 9, 0, b"", b"q"),
        PutSink(b"/", b"t", 1, [3]),
        PutReceipts(b"/", 8, ODD, 0, 21, [], []),
    ]
    assert listed(metadata.load()) == [attributes(change) for change in expected]
    assert metadata.load().next_vhost_id == 10
    metadata.close()


def test_metadata_remembers_the_ids_of_deleted_queues(tmp_path: Path) -> None:
    """A queue id is never given twice, also after its queue is deleted."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    assert metadata.load().next_queue_id == 1
    metadata.apply(
        [PutQueue(b"/", 7, b"q", True, False, b""), PutQueue(b"/", 3, b"r", True, False, b"")]
    )
    assert metadata.load().next_queue_id == 8
    metadata.apply(
        [PutQueue(b"/", 7, b"q", True, True, b""), DeleteQueue(b"/", 7), DeleteQueue(b"/", 3)]
    )
    assert metadata.load().next_queue_id == 8
    metadata.close()


def test_metadata_takes_a_queue_that_was_refused_for_a_deleted_one(tmp_path: Path) -> None:
    """The id of a refused queue is not reused: a journal may have messages of it."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    metadata.apply([DeleteQueue(b"/", 4)])
    assert metadata.load().next_queue_id == 5
    metadata.apply([DeleteQueue(b"/", 2)])
    assert metadata.load().next_queue_id == 5
    metadata.close()


def test_metadata_tells_want_of_space_and_a_lock_from_other_failures(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    metadata = SqliteMetadata(path)
    # Forbid more pages: SQLite then reports the error of a full disk.
    (pages,) = metadata._connection.execute("PRAGMA page_count").fetchone()
    metadata._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(MetadataError) as full:
        metadata.apply([PutExchange(b"/", b"x", b"direct", False, False, bytes(100_000))])
    assert full.value.may_be_full and not full.value.is_locked
    # Smaller changes still fit.
    metadata.apply([PutVhost(b"/", 1)])
    metadata._connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(MetadataError) as locked:
        metadata.apply([PutVhost(b"v", 2)])
    assert locked.value.is_locked and not locked.value.may_be_full
    other.close()
    metadata.apply([PutVhost(b"v", 2)])
    metadata.close()


def test_metadata_apply_is_all_or_nothing(tmp_path: Path) -> None:
    """A failing change rolls back its whole transaction, and later changes work."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    metadata.apply([PutVhost(b"/", 1)])
    with pytest.raises(MetadataError) as caught:
        metadata.apply([PutQueue(b"/", 1, b"q", True, False, b""), PutVhost(b"other", 1)])
    assert not isinstance(caught.value, MetadataDamaged)
    assert listed(metadata.load()) == [attributes(PutVhost(b"/", 1))]
    metadata.apply([PutVhost(b"other", 2)])
    assert len(metadata.load().vhosts) == 2
    metadata.close()


def test_metadata_locked_by_another_is_no_damage(tmp_path: Path) -> None:
    """A locked database gives an error that says so, and works again after the lock."""
    path = tmp_path / "node.sqlite"
    metadata = SqliteMetadata(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(MetadataError, match="locked") as caught:
        metadata.apply([PutVhost(b"/", 1)])
    assert not isinstance(caught.value, MetadataDamaged)
    other.execute("ROLLBACK")
    other.close()
    metadata.apply([PutVhost(b"/", 1)])
    metadata.close()


def test_metadata_is_applied_from_another_thread(tmp_path: Path) -> None:
    """The loop's thread may load and the flusher's thread apply."""
    metadata = SqliteMetadata(tmp_path / "node.sqlite")
    metadata.load()
    thread = threading.Thread(target=metadata.apply, args=([PutVhost(b"/", 1)],))
    thread.start()
    thread.join()
    metadata.close()
    assert loaded(tmp_path / "node.sqlite") == [attributes(PutVhost(b"/", 1))]


# Makes a file of schema version 7 of a new one.
TO_VERSION_7 = """
    DROP TABLE receipts; ALTER TABLE reader_group_members DROP COLUMN has_lapsed;
    UPDATE schema_version SET version = 7;
"""
# Makes a file of schema version 6 of a new one.
TO_VERSION_6 = (
    TO_VERSION_7
    + """
    ALTER TABLE reader_group_members DROP COLUMN incarnation; UPDATE schema_version SET version = 6;
"""
)
# Makes a file of schema version 5 of a new one.
TO_VERSION_5 = (
    TO_VERSION_6
    + """
    ALTER TABLE queues DROP COLUMN birth; UPDATE schema_version SET version = 5;
"""
)
# Makes a file of schema version 4 of a new one.
TO_VERSION_4 = (
    TO_VERSION_5
    + """
    DROP TABLE queue_parts; UPDATE schema_version SET version = 4;
"""
)
# Makes a file of schema version 3 of a new one.
TO_VERSION_3 = (
    TO_VERSION_4
    + """
    DROP TABLE topic_permissions; DROP TABLE parameters; DROP TRIGGER number_vhosts;
    ALTER TABLE vhosts DROP COLUMN description; ALTER TABLE vhosts DROP COLUMN tags;
    ALTER TABLE vhosts DROP COLUMN default_queue_type; ALTER TABLE vhosts DROP COLUMN is_tracing;
    ALTER TABLE users DROP COLUMN max_connections; ALTER TABLE users DROP COLUMN max_channels;
    ALTER TABLE numbering DROP COLUMN next_vhost_id;
    UPDATE schema_version SET version = 3;
"""
)


def test_metadata_of_version_7_is_brought_up_to_date(tmp_path: Path) -> None:
    """A file of version 7 knows no books of receipts; their ids count as used from now on."""
    path = tmp_path / "node.sqlite"
    SqliteMetadata(path).close()
    connection = sqlite3.connect(path)
    connection.executescript(TO_VERSION_7)
    connection.close()
    assert loaded(path) == []
    book = PutReceipts(b"/", 40, b"sink", 7, 3, [5, 5], [])
    metadata = SqliteMetadata(path)
    metadata.apply([book])
    assert metadata.load().next_queue_id == 41
    metadata.apply([DeleteReceipts(b"/", 40)])
    assert metadata.load().next_queue_id == 41
    metadata.close()
    assert loaded(path) == []


def test_metadata_of_version_6_is_brought_up_to_date(tmp_path: Path) -> None:
    """Reader groups of version 6 know queues by their ids; a later write gives an incarnation."""
    path = tmp_path / "node.sqlite"
    group: list[Change] = [
        PutReaderGroup(b"/", b"g", 3, ""),
        PutGroupMember(b"/", b"g", 7, b"q", 10, 20, False),
    ]
    metadata = SqliteMetadata(path)
    metadata.apply(group)
    metadata.close()
    connection = sqlite3.connect(path)
    connection.executescript(TO_VERSION_6)
    connection.close()
    assert loaded(path) == [attributes(change) for change in group]
    born = PutGroupMember(b"/", b"g", 7, b"q", 10, 20, False, incarnation=12)
    metadata = SqliteMetadata(path)
    metadata.apply([born])
    metadata.close()
    assert loaded(path) == [attributes(group[0]), attributes(born)]


def test_metadata_of_version_5_is_brought_up_to_date(tmp_path: Path) -> None:
    """The queues of a file of version 5 have no birth; a later write gives them one."""
    path = tmp_path / "node.sqlite"
    queue = PutQueue(b"/", 7, b"q", True, False, ODD)
    metadata = SqliteMetadata(path)
    metadata.apply([queue])
    metadata.close()
    connection = sqlite3.connect(path)
    connection.executescript(TO_VERSION_5)
    connection.close()
    assert loaded(path) == [attributes(queue)]
    born = PutQueue(b"/", 7, b"q", True, False, ODD, birth=12)
    metadata = SqliteMetadata(path)
    metadata.apply([born])
    metadata.close()
    assert loaded(path) == [attributes(born)]


def test_metadata_of_version_4_is_brought_up_to_date(tmp_path: Path) -> None:
    """A file of version 4 has no parts of queues; a deleted queue takes its parts along."""
    path = tmp_path / "node.sqlite"
    queue = PutQueue(b"/", 7, b"q", True, False, b"")
    metadata = SqliteMetadata(path)
    metadata.apply([queue])
    metadata.close()
    connection = sqlite3.connect(path)
    connection.executescript(TO_VERSION_4)
    connection.close()
    assert loaded(path) == [attributes(queue)]
    parts: list[Change] = [PutQueuePart(b"/", 8, 7, 2), PutQueuePart(b"/", 9, 0, 5)]
    metadata = SqliteMetadata(path)
    metadata.apply(parts)
    assert metadata.load().next_queue_id == 10
    metadata.close()
    assert loaded(path) == [attributes(change) for change in [queue, *parts]]
    metadata = SqliteMetadata(path)
    metadata.apply([DeleteQueue(b"/", 7), DeleteQueuePart(b"/", 9)])
    metadata.close()
    assert loaded(path) == []


def test_metadata_of_version_3_is_brought_up_to_date(tmp_path: Path) -> None:
    """A file of version 3 has vhosts and users without what was added, and numbers vhosts on."""
    path = tmp_path / "node.sqlite"
    metadata = SqliteMetadata(path)
    known = [PutVhost(b"/", 1), PutVhost(b"v", 4), PutUser(b"guest", b"h", "m", ["a"])]
    metadata.apply(list[Change](known))
    metadata.close()
    connection = sqlite3.connect(path)
    connection.executescript(TO_VERSION_3)
    connection.close()
    for _ in range(2):
        assert loaded(path) == [attributes(change) for change in known]
    metadata = SqliteMetadata(path)
    assert metadata.load().next_vhost_id == 5
    metadata.apply([PutVhost(b"w", 5, "d"), DeleteVhost(b"w"), PutParameter(b"/", "c", "n", "1")])
    assert metadata.load().next_vhost_id == 6
    metadata.close()


def test_metadata_of_version_1_is_brought_up_to_date(tmp_path: Path) -> None:
    """Groups of version 1, which have one queue, become groups of many.

    The name of a deleted queue is unknown, so its member has an empty name.
    """
    path = tmp_path / "node.sqlite"
    metadata = SqliteMetadata(path)
    metadata.apply([PutQueue(b"/", 7, b"q", True, False, b"")])
    metadata.close()
    connection = sqlite3.connect(path)
    connection.executescript(
        TO_VERSION_3
        + """
        DROP TABLE reader_groups; DROP TABLE reader_group_members; DROP TABLE stages; DROP TABLE sinks;
        CREATE TABLE reader_groups (
            vhost BLOB NOT NULL, name BLOB NOT NULL, epoch INTEGER NOT NULL, queue_id INTEGER NOT NULL,
            acked INTEGER NOT NULL, reserved INTEGER NOT NULL, UNIQUE (vhost, name)) STRICT;
        INSERT INTO reader_groups VALUES (CAST('/' AS BLOB), CAST('g' AS BLOB), 3, 7, 10, 20);
        INSERT INTO reader_groups VALUES (CAST('/' AS BLOB), CAST('h' AS BLOB), 1, 5, 1, 2);
        UPDATE schema_version SET version = 1;
        """
    )
    connection.close()
    expected: list[Change] = [
        PutQueue(b"/", 7, b"q", True, False, b""),
        PutReaderGroup(b"/", b"g", 3, ""),
        PutReaderGroup(b"/", b"h", 1, ""),
        PutGroupMember(b"/", b"g", 7, b"q", 10, 20, False),
        PutGroupMember(b"/", b"h", 5, b"", 1, 2, False),
    ]
    for _ in range(2):
        assert loaded(path) == [attributes(change) for change in expected]


def test_metadata_of_version_2_is_brought_up_to_date(tmp_path: Path) -> None:
    """Stages of version 2 have no target: they are routed; new ones may have a target."""
    path = tmp_path / "node.sqlite"
    SqliteMetadata(path).close()
    connection = sqlite3.connect(path)
    connection.executescript(
        TO_VERSION_3
        + """
        ALTER TABLE stages DROP COLUMN target;
        INSERT INTO stages VALUES (CAST('/' AS BLOB), 9, CAST('s' AS BLOB), 4, 1000, 3, 0, x'');
        UPDATE schema_version SET version = 2;
        """
    )
    connection.close()
    old = PutStage(b"/", 9, b"s", 4, 1000, 3, 0, b"", b"")
    assert loaded(path) == [attributes(old)]
    new = PutStage(b"/", 10, b"s", 5, 1000, 1, 1, b"\x00\x01k", b"q")
    metadata = SqliteMetadata(path)
    metadata.apply([new])
    metadata.close()
    assert loaded(path) == [attributes(old), attributes(new)]


def test_metadata_of_a_later_version_is_refused_but_not_damaged(tmp_path: Path) -> None:
    """A later version is refused, not damaged: it must not be moved aside, for a newer warren."""
    path = tmp_path / "node.sqlite"
    SqliteMetadata(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema_version SET version = 9")
    connection.close()
    with pytest.raises(
        MetadataError, match="schema version 9; this warren reads version 8"
    ) as caught:
        SqliteMetadata(path)
    assert not isinstance(caught.value, MetadataDamaged)


def test_metadata_that_cannot_be_opened_is_not_damaged(tmp_path: Path) -> None:
    """A directory in place of the file is a failure to open, not damage."""
    with pytest.raises(MetadataError, match="cannot open") as caught:
        SqliteMetadata(tmp_path)
    assert not isinstance(caught.value, MetadataDamaged)


def test_metadata_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """An empty file, as a crash before the first commit leaves it, is a new store."""
    path = tmp_path / "node.sqlite"
    path.touch()
    assert loaded(path) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE queues",
        "DROP TABLE schema_version",
        "DELETE FROM schema_version",
        "DELETE FROM numbering",
        "ALTER TABLE bindings DROP COLUMN source",
    ],
)
def test_metadata_without_its_tables_is_damaged(tmp_path: Path, statement: str) -> None:
    """A database without one of warren's tables, rows or columns is damaged."""
    path = tmp_path / "node.sqlite"
    SqliteMetadata(path).close()
    connection = sqlite3.connect(path)
    if "bindings" in statement:
        connection.execute("DROP TABLE bindings")
        connection.execute("CREATE TABLE bindings (source BLOB, other BLOB)")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(MetadataDamaged):
        loaded(path)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "node.sqlite"
    metadata = SqliteMetadata(path)
    metadata.apply(EVERYTHING)
    metadata.apply(
        [PutQueue(b"/", n, b"queue %d" % n, True, False, b"x" * 100) for n in range(10, 300)]
    )
    metadata.close()
    return path


@given(data=st.data())
def test_metadata_damaged_anywhere_is_reported_or_harmless(
    intact: Path, data: st.DataObject
) -> None:
    """A file damaged or cut at any place gives MetadataError or definitions, no other exception."""
    raw = bytearray(intact.read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[position:]
    else:
        raw[position : position + 64] = data.draw(st.binary(min_size=1, max_size=64))
    path = intact.parent / "damaged.sqlite"
    for file in intact.parent.glob("damaged.sqlite*"):
        file.unlink()
    path.write_bytes(raw)
    try:
        definitions = loaded(path)
    except MetadataError as error:
        assert "\n" not in str(error)
        return
    assert len(definitions) <= len(EVERYTHING) + 290
