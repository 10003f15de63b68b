"""The definitions of a single node in one SQLite file (decision 002).

The file uses a write-ahead log with `synchronous=FULL`: a commit returns after SQLite has synced
the log, so an `apply` is one fsync. Names and argument tables are BLOBs, compared byte for byte.
Foreign keys are off: definitions that belong together are deleted by separate changes, and a
definition without its other half must not stop a commit; the broker reports it.

This module is interpreted, because it waits for the disk in C anyway.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from warrenmq.broker.definitions.kinds import KINDS
from warrenmq.broker.definitions.metadata import (
    NO_ID,
    Change,
    Definitions,
    Metadata,
    MetadataDamaged,
    MetadataError,
)
from warrenmq.broker.definitions.metadata_schema import NEW_FILE, SCHEMA_VERSION, TAKE_OVER
from warrenmq.broker.definitions.metadata_statements import columns, statements

# The first SQLite with STRICT tables.
SQLITE_VERSION_MIN: Final = (3, 37, 0)

# Time to wait for a lock (s). Only an operator who inspects the file can hold one beside the node.
LOCK_WAIT_S: Final = 1.0

# SQLite's codes that may mean a full disk: IOERR also for an exceeded quota, CANTOPEN for a file
# that cannot be created.
_SPACE_CODES: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_LOCK_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteMetadata(Metadata):
    """The store of definitions in the file `path`, which is created when missing or empty.

    `is_exclusive`: keep everybody else from the file, and so need no file of shared memory beside
    it; a store that has been closed is opened without a free byte on the disk then.

    Opening raises MetadataDamaged for a file that is no such store, MetadataError for a file that
    cannot be opened or is of a later version. After an error the file is closed.
    """

    def __init__(self, path: Path, is_exclusive: bool = False) -> None:
        self._path = path
        self._is_exclusive = is_exclusive
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
        # A damaged character must not cost all other definitions.
        self._connection.text_factory = _text
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
                for sql, values in statements(change):
                    self._connection.execute(sql, values)
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
        if self._is_exclusive:
            execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA foreign_keys = OFF")
        if execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
            self._connection.executescript(NEW_FILE)
        versions = execute("SELECT version FROM schema_version").fetchall()
        if len(versions) != 1 or not isinstance(versions[0][0], int):
            raise MetadataDamaged(f"{self._path} is damaged: its schema version is {versions}")
        version = versions[0][0]
        if version in TAKE_OVER:
            self._connection.executescript(TAKE_OVER[version])
        elif version != SCHEMA_VERSION:
            raise MetadataError(
                f"{self._path} has schema version {version}; this warren reads version {SCHEMA_VERSION}"
            )

    def _read(self) -> Definitions:
        definitions = Definitions()
        for kind in KINDS:
            conversions = [
                (place, _READ[type])
                for place, type in enumerate(kind.columns.values())
                if type in _READ
            ]
            found = kind.listed(definitions)
            for row in self._rows(f"{columns(kind.columns)} FROM {kind.table.name}"):
                attributes = list(row)
                for place, read in conversions:
                    attributes[place] = read(attributes[place])
                found.append(kind.put(*attributes))
        numbering = self._rows("next_queue_id, next_vhost_id FROM numbering")
        if len(numbering) != 1:
            raise MetadataDamaged(
                f"{self._path} is damaged: it has {len(numbering)} rows of numbering"
            )
        definitions.next_queue_id, definitions.next_vhost_id = numbering[0]
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


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _ids(text: str) -> list[int]:
    try:
        return [int(id) for id in text.split()]
    except ValueError:
        # A sink with such a stage is set aside (`usable.py`).
        return [NO_ID]


# Attributes by type that SQLite stores as another type.
_READ: Final[dict[Any, Callable[[Any], object]]] = {
    bool: bool,
    list[str]: _lines,
    list[int]: _ids,
}


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that the Python module raises itself (undecodable text) have no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF
