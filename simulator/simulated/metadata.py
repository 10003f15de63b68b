"""Definitions of the simulated node: a map with transactions that are written, then synced.

The transactions behave as those of SQLite's log. When the sync of a written transaction fails, the
process treats the transaction as absent, and the next one overwrites it. After a kill the written
transaction is there whole, since it is in the page cache; after a power failure it may be there. A
transaction whose write failed or was torn has no valid checksum, so it is never there. A full disk
refuses every transaction.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from random import Random
from typing import Final, cast

from simulator.simulated.file_system import KILL, SimulatedFileSystem
from warrenmq.broker.definitions.kinds import KIND_OF, getter
from warrenmq.broker.definitions.metadata import Change, Definitions, MetadataError, PutQueue

Key = tuple[object, ...]
# Bytes of one change in the log of a transaction.
CHANGE_BYTES: Final = 64


class SimulatedMetadata:
    """Definitions by key, oldest first; `disk` counts the commits and makes some of them fail."""

    def __init__(
        self, disk: SimulatedFileSystem, definitions: dict[Key, Change] | None = None
    ) -> None:
        self._disk = disk
        self._definitions = definitions if definitions is not None else {}
        # Larger than the id of every queue that was ever stored.
        self.next_queue_id = 1
        # Changes of a transaction that is written and not synced.
        self._unsynced: list[Change] = []

    def load(self) -> Definitions:
        """Read every stored definition."""
        found = Definitions()
        for definition in self._definitions.values():
            KIND_OF[type(definition)].listed(found).append(definition)
        found.next_queue_id = self.next_queue_id
        return found

    def apply(self, changes: list[object]) -> None:
        """Commit all `changes`, or none (MetadataError).

        After a MetadataError the changes may still be there if the node crashes before the next
        commit.
        """
        transaction = list(cast(Iterable[Change], changes))
        self._unsynced = []
        try:
            self._disk.step("metadata", "")
            self._disk.make_room(CHANGE_BYTES * len(transaction))
            self._unsynced = transaction
            self._disk.step("metadata_sync", "")
        except OSError as error:
            raise MetadataError(str(error), may_be_full=error.errno == errno.ENOSPC) from None
        self._unsynced = []
        for change in transaction:
            self._apply(change)

    def crash(self, rng: Random, rule: str) -> None:
        """End the process; an unsynced transaction survives a KILL, and else 1 in 2 times."""
        unsynced, self._unsynced = self._unsynced, []
        if unsynced and (rule == KILL or rng.random() < 0.5):
            for change in unsynced:
                self._apply(change)

    def fork(self, disk: SimulatedFileSystem) -> SimulatedMetadata:
        """An equal copy of the definitions, for another disk."""
        twin = SimulatedMetadata(disk, dict(self._definitions))
        twin.next_queue_id = self.next_queue_id
        return twin

    def queue_ids(self) -> set[int]:
        """Ids of the stored queues."""
        return {
            definition.id
            for definition in self._definitions.values()
            if isinstance(definition, PutQueue)
        }

    def _apply(self, change: Change) -> None:
        definitions = self._definitions
        kind = KIND_OF[type(change)]
        key = getter(kind.table.key)(change)
        if "id" in kind.table.key:
            self.next_queue_id = max(self.next_queue_id, getter(["id"])(change)[0] + 1)
        if isinstance(change, kind.put):
            definitions[kind, *key] = change
            return
        definitions.pop((kind, *key), None)
        for owned, columns in kind.owned():
            owner_of = getter(columns)
            for other, definition in list(definitions.items()):
                if isinstance(definition, owned.put) and owner_of(definition) == key:
                    del definitions[other]
