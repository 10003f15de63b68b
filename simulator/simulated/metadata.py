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
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteBinding,
    DeleteExchange,
    DeleteGroupMember,
    DeleteParameter,
    DeleteQueue,
    DeleteQueuePart,
    DeleteReaderGroup,
    DeleteSink,
    DeleteStage,
    MetadataError,
    PutBinding,
    PutExchange,
    PutGroupMember,
    PutParameter,
    PutQueue,
    PutQueuePart,
    PutReaderGroup,
    PutSink,
    PutStage,
)

_Put = (
    PutExchange
    | PutQueue
    | PutBinding
    | PutReaderGroup
    | PutGroupMember
    | PutStage
    | PutSink
    | PutQueuePart
    | PutParameter
)
Key = tuple[object, ...]
# Bytes of one change in the log of a transaction.
CHANGE_BYTES: Final = 64


class SimulatedMetadata:
    """Definitions by key, oldest first; `disk` counts the commits and makes some of them fail."""

    def __init__(
        self, disk: SimulatedFileSystem, definitions: dict[Key, _Put] | None = None
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
            if isinstance(definition, PutQueue):
                found.queues.append(definition)
            elif isinstance(definition, PutExchange):
                found.exchanges.append(definition)
            elif isinstance(definition, PutBinding):
                found.bindings.append(definition)
            elif isinstance(definition, PutGroupMember):
                found.group_members.append(definition)
            elif isinstance(definition, PutStage):
                found.stages.append(definition)
            elif isinstance(definition, PutQueuePart):
                found.queue_parts.append(definition)
            elif isinstance(definition, PutSink):
                found.sinks.append(definition)
            elif isinstance(definition, PutParameter):
                found.parameters.append(definition)
            else:
                found.reader_groups.append(definition)
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
        if isinstance(change, PutQueue):
            definitions["queue", change.id] = change
            self.next_queue_id = max(self.next_queue_id, change.id + 1)
        elif isinstance(change, DeleteQueue):
            definitions.pop(("queue", change.id), None)
            self._delete_parts(change.id)
            self.next_queue_id = max(self.next_queue_id, change.id + 1)
        elif isinstance(change, PutQueuePart):
            definitions["part", change.id] = change
            self.next_queue_id = max(self.next_queue_id, change.id + 1)
        elif isinstance(change, DeleteQueuePart):
            definitions.pop(("part", change.id), None)
        elif isinstance(change, PutExchange):
            definitions["exchange", change.name] = change
        elif isinstance(change, DeleteExchange):
            definitions.pop(("exchange", change.name), None)
        elif isinstance(change, PutBinding):
            definitions[_binding_key(change)] = change
        elif isinstance(change, DeleteBinding):
            definitions.pop(_binding_key(change), None)
        elif isinstance(change, PutReaderGroup):
            definitions["group", change.name] = change
        elif isinstance(change, DeleteReaderGroup):
            definitions.pop(("group", change.name), None)
            for key in [key for key in definitions if key[:2] == ("member", change.name)]:
                del definitions[key]
        elif isinstance(change, PutGroupMember):
            definitions["member", change.group, change.queue_id] = change
        elif isinstance(change, DeleteGroupMember):
            definitions.pop(("member", change.group, change.queue_id), None)
        elif isinstance(change, PutStage):
            definitions["stage", change.id] = change
            self.next_queue_id = max(self.next_queue_id, change.id + 1)
        elif isinstance(change, DeleteStage):
            definitions.pop(("stage", change.id), None)
        elif isinstance(change, PutSink):
            definitions["sink", change.name] = change
        elif isinstance(change, DeleteSink):
            definitions.pop(("sink", change.name), None)
        elif isinstance(change, PutParameter):
            definitions["parameter", change.component, change.name] = change
        elif isinstance(change, DeleteParameter):
            definitions.pop(("parameter", change.component, change.name), None)
        else:
            raise TypeError(f"unexpected change {change}")

    def _delete_parts(self, owner: int) -> None:
        definitions = self._definitions
        for key, definition in list(definitions.items()):
            if isinstance(definition, PutQueuePart) and definition.owner == owner:
                del definitions[key]


def _binding_key(binding: PutBinding | DeleteBinding) -> Key:
    return (
        "binding", binding.source, binding.destination, binding.destination_is_queue, binding.key, binding.arguments,
    )  # fmt: skip
