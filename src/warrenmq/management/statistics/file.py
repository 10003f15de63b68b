"""The history in an SQLite file, so that it outlives the management process.

A thread saves every few minutes what has changed since the last time, and once more at the end.
The statistics are locked only while references and changed objects are copied. A file that is lost
or damaged costs the history and nothing else.
"""

import contextlib
import logging
import sqlite3
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from warrenmq.management.statistics.figures import Figures
from warrenmq.management.statistics.node import NodeFigures
from warrenmq.management.statistics.samples import Ring, Samples
from warrenmq.management.statistics.statistics import Statistics

logger = logging.getLogger("warren.management")

# Time between two saves (s).
_INTERVAL_S: Final = 300.0
# Changes with the tables and with the order of figures.
_VERSION: Final = 4
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS nodes (
    node TEXT PRIMARY KEY, started_ms INTEGER, ended_ms INTEGER, long_ms BLOB, short_ms BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    node TEXT, kind TEXT, vhost TEXT, name TEXT, id INTEGER, started_ms INTEGER,
    birth INTEGER, epoch INTEGER, changed_ms INTEGER, seen BLOB, offsets BLOB, slots BLOB,
    PRIMARY KEY (node, kind, vhost, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS intervals (
    node TEXT, is_long INTEGER, length_ms INTEGER, place INTEGER, number INTEGER, tick_ms INTEGER,
    differences BLOB, PRIMARY KEY (node, is_long, length_ms, place)
) WITHOUT ROWID;
"""
_DROP: Final = """
DROP TABLE IF EXISTS nodes;
DROP TABLE IF EXISTS objects;
DROP TABLE IF EXISTS intervals;
"""
_FORGET: Final = (
    "DELETE FROM nodes WHERE node = ?",
    "DELETE FROM objects WHERE node = ?",
    "DELETE FROM intervals WHERE node = ?",
)
_WRITE_NODE: Final = "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?)"
_WRITE_OBJECT: Final = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_WRITE_INTERVAL: Final = "INSERT OR REPLACE INTO intervals VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE_OBJECT: Final = "DELETE FROM objects WHERE node = ? AND kind = ? AND vhost = ? AND name = ?"


class _Snapshot(NamedTuple):
    """What has changed, as rows of the tables, and the names of all objects."""

    node: tuple[Any, ...]
    objects: list[tuple[Any, ...]]
    intervals: list[tuple[Any, ...]]
    names: set[tuple[str, str, str]]


class HistoryFile:
    """Reads the history of `statistics` from `path`, and saves it there until `close`."""

    def __init__(self, path: Path, statistics: Statistics) -> None:
        self._path = path
        self._statistics = statistics
        # By node, the last tick that is saved and the samples of which it was one.
        self._saved: dict[str, tuple[int, Samples]] = {}
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_saving, name="history", daemon=True)
        try:
            self._load()
        except (sqlite3.Error, OSError, ValueError, LookupError) as error:
            logger.warning("the history in %s begins anew: %s", path, error)
            path.unlink(missing_ok=True)
        self._thread.start()

    def close(self) -> None:
        """Save once more, and end."""
        self._is_ended.set()
        self._thread.join()

    def _keep_saving(self) -> None:
        while not self._is_ended.wait(_INTERVAL_S):
            self._try_to_save()
        self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self._save()
        except (sqlite3.Error, OSError) as error:
            logger.warning("the history is not saved in %s: %s", self._path, error)
        except Exception:  # A bug costs a save, and not the thread.
            logger.exception("internal error: the history is not saved in %s", self._path)

    # -- save --------------------------------------------------------------------------------------

    def _save(self) -> None:
        with _opened(self._path) as database:
            for node in list(self._statistics.nodes.values()):
                with self._statistics.lock:
                    # The samples are others after a reset: then all is written anew.
                    samples, ended_ms = node.long, node.ended_ms
                    saved_ms, saved = self._saved.get(node.name, (0, samples))
                    is_new = saved is not samples or not saved_ms
                    snapshot = _snapshot(node, 0 if is_new else saved_ms)
                with database:
                    if is_new:
                        for statement in _FORGET:
                            database.execute(statement, [node.name])
                    _write(database, node.name, snapshot)
                self._saved[node.name] = ended_ms, samples

    # -- load --------------------------------------------------------------------------------------

    def _load(self) -> None:
        with _opened(self._path) as database:
            for row in database.execute("SELECT * FROM nodes").fetchall():
                node = self._statistics.new_node(row[0])
                _read(database, node, *row[1:])
                self._statistics.nodes[node.name] = node
                self._saved[node.name] = node.ended_ms, node.long


def _snapshot(node: NodeFigures, saved_ms: int) -> _Snapshot:
    """What has changed since the tick at `saved_ms`, 0 for everything."""
    since = [samples.since_ms.tobytes() for samples in (node.long, node.short)]
    everything = node.all()
    return _Snapshot(
        (node.name, node.started_ms, node.ended_ms, *since),
        [
            (node.name, *_identity(each), each.changed_ms, *each.dump())
            for each in everything
            if each.tick_ms > saved_ms or not saved_ms
        ],
        [
            (node.name, is_long, ring.resolution.interval_ms, *row)
            for is_long, samples in ((1, node.long), (0, node.short))
            for ring in samples.rings
            for row in _changed(ring, saved_ms)
        ],
        {(each.kind, each.vhost, each.name) for each in everything},
    )


def _identity(figures: Figures) -> tuple[Any, ...]:
    """What tells an object from the others of its node."""
    return (
        *(figures.kind, figures.vhost, figures.name, figures.id, figures.started_ms),
        *(figures.birth, figures.epoch),
    )


def _changed(ring: Ring, saved_ms: int) -> Iterator[tuple[int, int, int, "array[float]"]]:
    """Place, number, tick and differences of the intervals that have changed since `saved_ms`."""
    kept = ring.resolution.kept
    for number in range(max(1, ring.newest - kept + 1), ring.newest + 1):
        tick_ms = ring.tick_ms(number)
        if tick_ms > saved_ms:
            row = ring.rows[number % kept]
            # Only the open row changes any more.
            yield number % kept, number, tick_ms, row[:] if number == ring.newest else row


def _write(database: sqlite3.Connection, node: str, snapshot: _Snapshot) -> None:
    database.execute(_WRITE_NODE, snapshot.node)
    database.executemany(_WRITE_OBJECT, snapshot.objects)
    database.executemany(_WRITE_INTERVAL, snapshot.intervals)
    found = database.execute("SELECT kind, vhost, name FROM objects WHERE node = ?", [node])
    gone = [(node, *each) for each in found.fetchall() if each not in snapshot.names]
    database.executemany(_DELETE_OBJECT, gone)


def _read(
    database: sqlite3.Connection,
    node: NodeFigures,
    started_ms: int,
    ended_ms: int,
    long_ms: bytes,
    short_ms: bytes,
) -> None:
    """Fill `node`. Raises ValueError or LookupError for values that cannot be."""
    node.started_ms, node.ended_ms = started_ms, ended_ms
    for is_long, samples, since_ms in ((1, node.long, long_ms), (0, node.short, short_ms)):
        for ring in samples.rings:
            rows = database.execute(
                "SELECT number, tick_ms, differences FROM intervals"
                " WHERE node = ? AND is_long = ? AND length_ms = ? ORDER BY number",
                [node.name, is_long, ring.resolution.interval_ms],
            )
            for number, tick_ms, differences in rows:
                ring.resume(number, tick_ms, differences)
        samples.resume(since_ms, ended_ms)
    rows = database.execute("SELECT * FROM objects WHERE node = ?", [node.name])
    objects = []
    for _, kind, vhost, name, number, since_ms, birth, epoch, changed_ms, *dumped in rows:
        figures = Figures(node.samples_of(kind), node.name, kind, vhost, name)
        figures.id, figures.started_ms = number, since_ms
        figures.birth, figures.epoch = birth, epoch
        figures.changed_ms = changed_ms
        figures.resume(*dumped)
        objects.append((number, figures))
    for samples in (node.long, node.short):
        samples.end_resume()
    node.resume(objects)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database in a file, which is made if it is missing, with the tables of this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=5)
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            database.executescript(_DROP)
            database.execute(f"PRAGMA user_version = {_VERSION}")
        # A power failure may cost the history; a killed process does not.
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(_SCHEMA)
        yield database
    finally:
        database.close()
