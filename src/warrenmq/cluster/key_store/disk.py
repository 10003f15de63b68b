"""The keys and leases of a `KeyStore` in one SQLite file.

As for the definitions of a lone node, the file has a write-ahead log with `synchronous=FULL`: a
write that has returned is on the disk, and one that a crash cut off leaves no trace.
"""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from warrenmq.cluster.errors import ClusterError
from warrenmq.cluster.key_store.store import KeyStore, LeaseEnded, LeaseGranted, Write
from warrenmq.cluster.metadata.operations import KeyValue

FORMAT: Final = 1
_TABLES: Final = """
    CREATE TABLE keys (
        key BLOB PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL,
        mod_revision INTEGER NOT NULL, lease INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE leases (lease INTEGER PRIMARY KEY, ttl_s INTEGER NOT NULL);
    CREATE TABLE store (revision INTEGER NOT NULL);
    INSERT INTO store VALUES (0);
"""


class KeyStoreError(ClusterError):
    """The file cannot be read or written; the text is one line."""


class KeyStoreFile:
    """The file `path`, which is made if it is missing. Raises KeyStoreError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Others on the machine may read neither this file nor those that SQLite puts beside it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise KeyStoreError(f"{path}: {error.strerror}") from None
        try:
            # One thread writes at a time, though not always the same one.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _open(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        (found,) = execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            raise KeyStoreError(f"{self._path} has format {found}; this warren reads {FORMAT}")
        if found == 0:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;"
            )

    def load(self) -> KeyStore:
        """The store as it was last written. Raises KeyStoreError."""
        execute = self._connection.execute
        try:
            if (found := execute("PRAGMA integrity_check(1)").fetchone()) != ("ok",):
                raise KeyStoreError(f"{self._path} is damaged: {' '.join(str(found[0]).split())}")
            (revision,) = execute("SELECT revision FROM store").fetchone()
            rows = execute("SELECT key, value, create_revision, mod_revision, lease FROM keys")
            keys = [KeyValue(*row) for row in rows]
            leases = [LeaseGranted(*row) for row in execute("SELECT lease, ttl_s FROM leases")]
        except sqlite3.Error as error:
            raise self._failure(error) from None
        store = KeyStore(revision, keys, leases, time.monotonic())
        store.size_bytes = self._path.stat().st_size
        return store

    def write(self, writes: list[Write], revision: int) -> None:
        """Store `writes`, after which the store is at `revision`. Raises KeyStoreError.

        All of them are on the disk afterwards, or none.
        """
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            for write in writes:
                self._write(write)
            execute("UPDATE store SET revision = ?", (revision,))
            execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise self._failure(error) from None

    def _write(self, write: Write) -> None:
        execute = self._connection.execute
        if isinstance(write, LeaseGranted):
            execute("INSERT INTO leases VALUES (?, ?)", write)
        elif isinstance(write, LeaseEnded):
            execute("DELETE FROM leases WHERE lease = ?", write)
        elif write.type == "DELETE":
            execute("DELETE FROM keys WHERE key = ?", (write.kv.key,))
        else:
            kv = write.kv
            row = (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)
            execute("REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _failure(self, error: sqlite3.Error) -> KeyStoreError:
        return KeyStoreError(f"{self._path}: {' '.join(str(error).split())}")
