"""The definitions of a single node in one SQLite file (decision 002).

The file uses a write-ahead log with `synchronous=FULL`: a commit returns after SQLite has synced
the log, so an `apply` is one fsync. Names and argument tables are BLOBs, compared byte for byte.
Foreign keys are off: definitions that belong together are deleted by separate changes, and a
definition without its other half must not stop a commit; the broker reports it.

This module is interpreted, because it waits for the disk in C anyway.
"""

import sqlite3
from pathlib import Path
from typing import Any, Final

from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteBinding,
    DeleteExchange,
    DeleteGroupMember,
    DeleteQueue,
    DeleteReaderGroup,
    DeleteSink,
    DeleteStage,
    Metadata,
    MetadataDamaged,
    MetadataError,
    PutBinding,
    PutExchange,
    PutGroupMember,
    PutPermission,
    PutQueue,
    PutReaderGroup,
    PutSink,
    PutStage,
    PutUser,
    PutVhost,
)

SCHEMA_VERSION: Final = 3
# The first SQLite with STRICT tables.
SQLITE_VERSION_MIN: Final = (3, 37, 0)

# Time to wait for a lock (s). Only an operator who inspects the file can hold one beside the node.
LOCK_WAIT_S: Final = 1.0

# SQLite's codes that may mean a full disk: IOERR also for an exceeded quota, CANTOPEN for a file
# that cannot be created.
_SPACE_CODES: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_LOCK_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

# STRICT tables refuse a value of the wrong type; such a value that is read back is damage.
_SCHEMA: Final = """
CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
CREATE TABLE vhosts (name BLOB NOT NULL UNIQUE, id INTEGER NOT NULL UNIQUE) STRICT;
CREATE TABLE users (
    name BLOB NOT NULL UNIQUE, password_hash BLOB NOT NULL, hashing TEXT NOT NULL, tags TEXT NOT NULL) STRICT;
CREATE TABLE permissions (
    vhost BLOB NOT NULL, user BLOB NOT NULL, configure TEXT NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    UNIQUE (vhost, user)) STRICT;
CREATE TABLE exchanges (
    vhost BLOB NOT NULL, name BLOB NOT NULL, type BLOB NOT NULL, auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL, arguments BLOB NOT NULL, UNIQUE (vhost, name)) STRICT;
CREATE TABLE queues (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, name BLOB NOT NULL, durable INTEGER NOT NULL,
    auto_delete INTEGER NOT NULL, arguments BLOB NOT NULL, UNIQUE (vhost, id)) STRICT;
CREATE TABLE bindings (
    vhost BLOB NOT NULL, source BLOB NOT NULL, destination BLOB NOT NULL, destination_is_queue INTEGER NOT NULL,
    key BLOB NOT NULL, arguments BLOB NOT NULL,
    UNIQUE (vhost, source, destination, destination_is_queue, key, arguments)) STRICT;
-- Outlives the queues and staging logs: an id in a journal that is below it belonged to a queue that is deleted.
CREATE TABLE numbering (next_queue_id INTEGER NOT NULL) STRICT;
INSERT INTO numbering VALUES (1);
CREATE TRIGGER number_queues AFTER INSERT ON queues BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
INSERT INTO schema_version VALUES (3);
"""
_READER_GROUPS: Final = """
CREATE TABLE reader_groups (
    vhost BLOB NOT NULL, name BLOB NOT NULL, epoch INTEGER NOT NULL, pattern TEXT NOT NULL,
    UNIQUE (vhost, name)) STRICT;
CREATE TABLE reader_group_members (
    vhost BLOB NOT NULL, "group" BLOB NOT NULL, queue_id INTEGER NOT NULL, queue_name BLOB NOT NULL,
    acked INTEGER NOT NULL, reserved INTEGER NOT NULL, is_ended INTEGER NOT NULL,
    UNIQUE (vhost, "group", queue_id)) STRICT;
"""
_SINKS: Final = """
CREATE TABLE stages (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, sink BLOB NOT NULL, batch INTEGER NOT NULL, finished_ms INTEGER NOT NULL,
    message_count INTEGER NOT NULL, unroutable_count INTEGER NOT NULL, unroutable BLOB NOT NULL,
    target BLOB NOT NULL, UNIQUE (vhost, id)) STRICT;
CREATE TABLE sinks (
    vhost BLOB NOT NULL, name BLOB NOT NULL, batch INTEGER NOT NULL, stages TEXT NOT NULL, UNIQUE (vhost, name)) STRICT;
CREATE TRIGGER number_stages AFTER INSERT ON stages BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
"""
# Schema version 1 had no sinks, and a reader group had one queue. Of a deleted queue only the id is
# known.
_PUT_ASIDE_VERSION_1: Final = "ALTER TABLE reader_groups RENAME TO old_groups;"
_TAKE_OVER_VERSION_1: Final = """
INSERT INTO reader_groups SELECT vhost, name, epoch, '' FROM old_groups ORDER BY rowid;
INSERT INTO reader_group_members
    SELECT g.vhost, g.name, g.queue_id, coalesce(q.name, CAST('' AS BLOB)), g.acked, g.reserved, 0
    FROM old_groups g LEFT JOIN queues q ON q.vhost = g.vhost AND q.id = g.queue_id ORDER BY g.rowid;
DROP TABLE old_groups;
UPDATE schema_version SET version = 3;
"""
# In schema version 2 a stage had no target: all messages are routed.
_TAKE_OVER_VERSION_2: Final = """
ALTER TABLE stages ADD COLUMN target BLOB NOT NULL DEFAULT x'';
UPDATE schema_version SET version = 3;
"""

# These statements update instead of replacing: a row keeps its place in the order of first writing.
_PUT_VHOST: Final = (
    "INSERT INTO vhosts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET id = excluded.id"
)
_PUT_USER: Final = (
    "INSERT INTO users VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
    "password_hash = excluded.password_hash, hashing = excluded.hashing, tags = excluded.tags"
)
_PUT_PERMISSION: Final = (
    "INSERT INTO permissions VALUES (?, ?, ?, ?, ?) ON CONFLICT (vhost, user) DO UPDATE SET "
    "configure = excluded.configure, write = excluded.write, read = excluded.read"
)
_PUT_EXCHANGE: Final = (
    "INSERT INTO exchanges VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, name) DO UPDATE SET type = excluded.type, "
    "auto_delete = excluded.auto_delete, internal = excluded.internal, arguments = excluded.arguments"
)
_DELETE_EXCHANGE: Final = "DELETE FROM exchanges WHERE vhost = ? AND name = ?"
_PUT_QUEUE: Final = (
    "INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, id) DO UPDATE SET name = excluded.name, "
    "durable = excluded.durable, auto_delete = excluded.auto_delete, arguments = excluded.arguments"
)
_DELETE_QUEUE: Final = "DELETE FROM queues WHERE vhost = ? AND id = ?"
# Marks an id as used: a queue whose definition was refused may have messages in the journal, and a
# start must treat it as deleted.
_NUMBER_QUEUE: Final = "UPDATE numbering SET next_queue_id = ?1 + 1 WHERE next_queue_id <= ?1"
_PUT_BINDING: Final = "INSERT INTO bindings VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_DELETE_BINDING: Final = (
    "DELETE FROM bindings WHERE vhost = ? AND source = ? AND destination = ? AND destination_is_queue = ? "
    "AND key = ? AND arguments = ?"
)
_PUT_READER_GROUP: Final = (
    "INSERT INTO reader_groups VALUES (?, ?, ?, ?) ON CONFLICT (vhost, name) DO UPDATE SET "
    "epoch = excluded.epoch, pattern = excluded.pattern"
)
_PUT_STAGE: Final = (
    "INSERT INTO stages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, id) DO UPDATE SET sink = excluded.sink, "
    "batch = excluded.batch, finished_ms = excluded.finished_ms, message_count = excluded.message_count, "
    "unroutable_count = excluded.unroutable_count, unroutable = excluded.unroutable, "
    "target = excluded.target"
)
_DELETE_STAGE: Final = "DELETE FROM stages WHERE vhost = ? AND id = ?"
_PUT_SINK: Final = (
    "INSERT INTO sinks VALUES (?, ?, ?, ?) ON CONFLICT (vhost, name) DO UPDATE SET batch = excluded.batch, "
    "stages = excluded.stages"
)
_DELETE_SINK: Final = "DELETE FROM sinks WHERE vhost = ? AND name = ?"
_DELETE_READER_GROUP: Final = "DELETE FROM reader_groups WHERE vhost = ? AND name = ?"
_PUT_GROUP_MEMBER: Final = (
    'INSERT INTO reader_group_members VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (vhost, "group", queue_id) DO UPDATE '
    "SET queue_name = excluded.queue_name, acked = excluded.acked, reserved = excluded.reserved, "
    "is_ended = excluded.is_ended"
)
_DELETE_GROUP_MEMBER: Final = (
    'DELETE FROM reader_group_members WHERE vhost = ? AND "group" = ? AND queue_id = ?'
)
_DELETE_GROUP_MEMBERS: Final = 'DELETE FROM reader_group_members WHERE vhost = ? AND "group" = ?'


class SqliteMetadata(Metadata):
    """The store of definitions in the file `path`, which is created when missing or empty.

    Opening raises MetadataDamaged for a file that is no such store, MetadataError for a file that
    cannot be opened or is of a later version. After an error the file is closed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise MetadataError(
                f"this Python has SQLite {sqlite3.sqlite_version}; warren needs 3.37 or later"
            )
        try:
            # The loop's thread loads; afterwards the thread that flushes applies changes.
            self._connection = sqlite3.connect(
                path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise MetadataError(
                f"cannot open {path}: {error}", _primary_code(error) in _SPACE_CODES
            ) from None
        try:
            self._open()
        except (sqlite3.Error, UnicodeError) as error:
            self._connection.close()
            raise self._read_failure(error) from None
        except MetadataError:
            self._connection.close()
            raise

    def load(self) -> Definitions:
        try:
            found = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != ("ok",):
                raise MetadataDamaged(f"{self._path} is damaged: {' '.join(str(found[0]).split())}")
            return self._read()
        except (sqlite3.Error, UnicodeError) as error:
            raise self._read_failure(error) from None

    def apply(self, changes: list[Change]) -> None:
        if not changes:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for change in changes:
                self._connection.execute(*_statement(change))
                if isinstance(change, DeleteReaderGroup):
                    self._connection.execute(_DELETE_GROUP_MEMBERS, (change.vhost, change.name))
                elif isinstance(change, DeleteQueue):
                    self._connection.execute(_NUMBER_QUEUE, (change.id,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failure(error) from None
        except BaseException:
            self._roll_back()
            raise

    def back_up(self, path: Path) -> None:
        """Copy the store, as of the last `apply`, to a new file `path`; the copy is not synced."""
        try:
            copy = sqlite3.connect(path, isolation_level=None)
            try:
                self._connection.backup(copy)
                # Without WAL mode the copy is a single file.
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def close(self) -> None:
        self._connection.close()

    def _open(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA foreign_keys = OFF")
        if execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
            self._connection.executescript(
                "BEGIN IMMEDIATE; " + _SCHEMA + _READER_GROUPS + _SINKS + "COMMIT;"
            )
        versions = execute("SELECT version FROM schema_version").fetchall()
        if len(versions) != 1 or not isinstance(versions[0][0], int):
            raise MetadataDamaged(f"{self._path} is damaged: its schema version is {versions}")
        if versions[0][0] == 1:
            self._connection.executescript(
                "BEGIN IMMEDIATE; "
                + _PUT_ASIDE_VERSION_1
                + _READER_GROUPS
                + _SINKS
                + _TAKE_OVER_VERSION_1
                + "COMMIT;"
            )
        elif versions[0][0] == 2:
            self._connection.executescript("BEGIN IMMEDIATE; " + _TAKE_OVER_VERSION_2 + "COMMIT;")
        elif versions[0][0] != SCHEMA_VERSION:
            raise MetadataError(
                f"{self._path} has schema version {versions[0][0]}; this warren reads version {SCHEMA_VERSION}"
            )

    def _read(self) -> Definitions:
        definitions = Definitions()
        for row in self._rows("name, id FROM vhosts"):
            definitions.vhosts.append(PutVhost(*row))
        for name, password_hash, hashing, tags in self._rows(
            "name, password_hash, hashing, tags FROM users"
        ):
            definitions.users.append(
                PutUser(name, password_hash, hashing, tags.split("\n") if tags else [])
            )
        for row in self._rows("vhost, user, configure, write, read FROM permissions"):
            definitions.permissions.append(PutPermission(*row))
        for vhost, name, type, auto_delete, internal, arguments in self._rows(
            "vhost, name, type, auto_delete, internal, arguments FROM exchanges"
        ):
            definitions.exchanges.append(
                PutExchange(vhost, name, type, auto_delete != 0, internal != 0, arguments)
            )
        for vhost, id, name, durable, auto_delete, arguments in self._rows(
            "vhost, id, name, durable, auto_delete, arguments FROM queues"
        ):
            definitions.queues.append(
                PutQueue(vhost, id, name, durable != 0, auto_delete != 0, arguments)
            )
        for vhost, source, destination, is_queue, key, arguments in self._rows(
            "vhost, source, destination, destination_is_queue, key, arguments FROM bindings"
        ):
            definitions.bindings.append(
                PutBinding(vhost, source, destination, is_queue != 0, key, arguments)
            )
        for row in self._rows("vhost, name, epoch, pattern FROM reader_groups"):
            definitions.reader_groups.append(PutReaderGroup(*row))
        for vhost, group, queue_id, name, acked, reserved, is_ended in self._rows(
            'vhost, "group", queue_id, queue_name, acked, reserved, is_ended FROM reader_group_members'
        ):
            definitions.group_members.append(
                PutGroupMember(vhost, group, queue_id, name, acked, reserved, is_ended != 0)
            )
        for row in self._rows(
            "vhost, id, sink, batch, finished_ms, message_count, unroutable_count, unroutable, target FROM stages"
        ):
            definitions.stages.append(PutStage(*row))
        for vhost, name, batch, stages in self._rows("vhost, name, batch, stages FROM sinks"):
            definitions.sinks.append(
                PutSink(vhost, name, batch, [int(stage) for stage in stages.split()])
            )
        numbering = self._rows("next_queue_id FROM numbering")
        if len(numbering) != 1:
            raise MetadataDamaged(
                f"{self._path} is damaged: it has {len(numbering)} rows of numbering"
            )
        definitions.next_queue_id = numbering[0][0]
        return definitions

    def _rows(self, columns: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} ORDER BY rowid"
        return self._connection.execute(query).fetchall()

    def _roll_back(self) -> None:
        # After some errors (disk full, I/O) SQLite has rolled the transaction back by itself.
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                # SQLite drops the transaction at the next start of the connection at the latest;
                # the caller reports the first error.
                return

    def _failure(self, error: sqlite3.Error) -> MetadataError:
        """The error to raise for SQLite's `error`.

        Bytes that are no database are damage; a full disk or a lock is not.
        """
        code = _primary_code(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return MetadataDamaged(f"{self._path} is damaged: {error}")
        return MetadataError(f"{self._path}: {error}", code in _SPACE_CODES, code in _LOCK_CODES)

    def _read_failure(self, error: sqlite3.Error | UnicodeError) -> MetadataError:
        """As `_failure`, but SQLITE_ERROR and UnicodeError are damage too.

        The statements are valid, so SQLITE_ERROR means a missing table or column, or undecodable
        text. UnicodeError means that Python cannot decode the message, which quotes a damaged table
        definition.
        """
        if isinstance(error, UnicodeError) or _primary_code(error) == sqlite3.SQLITE_ERROR:
            return MetadataDamaged(f"{self._path} is damaged: {error}")
        return self._failure(error)


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that the Python module raises itself (undecodable text) have no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _statement(change: Change) -> tuple[str, tuple[Any, ...]]:
    """The SQL statement of one change, and its values."""
    match change:
        case PutReaderGroup():
            return _PUT_READER_GROUP, (change.vhost, change.name, change.epoch, change.pattern)
        case PutGroupMember():
            return _PUT_GROUP_MEMBER, (
                change.vhost, change.group, change.queue_id, change.queue_name, change.acked, change.reserved,
                change.is_ended,
            )  # fmt: skip
        case DeleteGroupMember():
            return _DELETE_GROUP_MEMBER, (change.vhost, change.group, change.queue_id)
        case PutQueue():
            return _PUT_QUEUE, (
                change.vhost, change.id, change.name, change.durable, change.auto_delete, change.arguments,
            )  # fmt: skip
        case DeleteQueue():
            return _DELETE_QUEUE, (change.vhost, change.id)
        case PutBinding():
            return _PUT_BINDING, _binding_values(change)
        case DeleteBinding():
            return _DELETE_BINDING, _binding_values(change)
        case PutExchange():
            return _PUT_EXCHANGE, (
                change.vhost, change.name, change.type, change.auto_delete, change.internal, change.arguments,
            )  # fmt: skip
        case DeleteExchange():
            return _DELETE_EXCHANGE, (change.vhost, change.name)
        case PutStage():
            return _PUT_STAGE, (
                change.vhost, change.id, change.sink, change.batch, change.finished_ms, change.message_count,
                change.unroutable_count, change.unroutable, change.target,
            )  # fmt: skip
        case DeleteStage():
            return _DELETE_STAGE, (change.vhost, change.id)
        case PutSink():
            return _PUT_SINK, (
                change.vhost,
                change.name,
                change.batch,
                " ".join(map(str, change.stages)),
            )
        case DeleteSink():
            return _DELETE_SINK, (change.vhost, change.name)
        case DeleteReaderGroup():
            return _DELETE_READER_GROUP, (change.vhost, change.name)
        case PutPermission():
            return _PUT_PERMISSION, (
                change.vhost,
                change.user,
                change.configure,
                change.write,
                change.read,
            )
        case PutUser():
            return _PUT_USER, (
                change.name,
                change.password_hash,
                change.hashing,
                "\n".join(change.tags),
            )
        case PutVhost():
            return _PUT_VHOST, (change.name, change.id)
    raise TypeError(f"{type(change).__name__} is no change that can be stored")


def _binding_values(change: PutBinding | DeleteBinding) -> tuple[Any, ...]:
    return (
        change.vhost, change.source, change.destination, change.destination_is_queue, change.key, change.arguments,
    )  # fmt: skip
