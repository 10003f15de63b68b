"""The definitions of the simulated node: a map that commits whole changes or none, durably, as SQLite does for real."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import cast

from warren.broker.metadata import (
    Change,
    Definitions,
    DeleteBinding,
    DeleteExchange,
    DeleteGroupMember,
    DeleteQueue,
    DeleteReaderGroup,
    DeleteSink,
    DeleteStage,
    MetadataError,
    PutBinding,
    PutExchange,
    PutGroupMember,
    PutQueue,
    PutReaderGroup,
    PutSink,
    PutStage,
)
from warren.testing.simulated_file_system import SimulatedFileSystem

_Put = PutExchange | PutQueue | PutBinding | PutReaderGroup | PutGroupMember | PutStage | PutSink
Key = tuple[object, ...]


class SimulatedMetadata:
    """Definitions by identity, in the order in which they were first written. `disk` counts and fails the commits."""

    def __init__(self, disk: SimulatedFileSystem, definitions: dict[Key, _Put] | None = None) -> None:
        self._disk = disk
        self._definitions = definitions if definitions is not None else {}
        # Above the id of every queue that was ever stored.
        self.next_queue_id = 1

    def load(self) -> Definitions:
        """Everything stored."""
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
            elif isinstance(definition, PutSink):
                found.sinks.append(definition)
            else:
                found.reader_groups.append(definition)
        found.next_queue_id = self.next_queue_id
        return found

    def apply(self, changes: list[object]) -> None:
        """Commit `changes`, all or none; a crash strikes before or behind it."""
        try:
            self._disk.step("metadata", "")
        except OSError as error:
            raise MetadataError(str(error), may_be_full=error.errno == errno.ENOSPC) from None
        for change in cast(Iterable[Change], changes):
            self._apply(change)

    def fork(self, disk: SimulatedFileSystem) -> SimulatedMetadata:
        """The same definitions for another disk."""
        twin = SimulatedMetadata(disk, dict(self._definitions))
        twin.next_queue_id = self.next_queue_id
        return twin

    def queue_ids(self) -> set[int]:
        """Ids of the queues that are stored."""
        return {
            definition.id for definition in self._definitions.values() if isinstance(definition, PutQueue)
        }

    def _apply(self, change: Change) -> None:
        definitions = self._definitions
        if isinstance(change, PutQueue):
            definitions["queue", change.id] = change
            self.next_queue_id = max(self.next_queue_id, change.id + 1)
        elif isinstance(change, DeleteQueue):
            definitions.pop(("queue", change.id), None)
            self.next_queue_id = max(self.next_queue_id, change.id + 1)
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
        else:
            raise TypeError(f"unexpected change {change}")


def _binding_key(binding: PutBinding | DeleteBinding) -> Key:
    return (
        "binding", binding.source, binding.destination, binding.destination_is_queue, binding.key, binding.arguments,
    )  # fmt: skip
