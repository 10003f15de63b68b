"""Which stored definitions a node can use; one that it cannot use is set aside and stops no start.

SQLite has no checksums, so a row may have values that no node writes. Then that row alone counts as
damaged. Messages of a queue, part or stage whose row is set aside are not those of a deleted one:
they must be kept (`Definitions.unusable_ids`). When an id itself is damaged, nobody knows which
messages these are, so the messages of all unknown ids must be kept (`has_lost_ids`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.metadata import NO_ID, Definitions, PutQueue, PutQueuePart
from warrenmq.queues.arguments import PRIORITY_MAX
from warrenmq.vocabulary.names import name_text

# The largest id: the journal has four octets for it, with a sign.
_ID_MAX: Final = (1 << 31) - 1
# Above every position, epoch and batch that a node reaches.
_NUMBER_MAX: Final = 1 << 60
# The longest name in AMQP (octets).
_NAME_MAX: Final = 255
# A bucket of delayed messages has its kind, one of three, above this bit of its number.
_BUCKET_KIND_BIT: Final = 48
_BUCKET_KINDS: Final = 3


def set_unusable_aside(found: Definitions) -> list[str]:
    """Remove the rows that no node writes from `found`; returns a line of text for each."""
    check = _Check(found)
    check.ends()
    check.parts()
    check.groups_and_sinks()
    check.numbering()
    return check.lines


class _Check:
    """The check of `found`; `lines` tell what was removed."""

    def __init__(self, found: Definitions) -> None:
        self.lines: list[str] = []
        self._found: Definitions = found
        # Names of the vhosts that can be used; a deleted vhost has taken its rows along.
        self._vhosts: set[bytes] = set()

    def ends(self) -> None:
        """Check vhosts, exchanges, queues and bindings."""
        found = self._found
        found.vhosts = [
            row
            for row in found.vhosts
            if self._passes(_is_id(row.id) and len(row.name) <= _NAME_MAX, "vhost", row.name)
        ]
        self._vhosts = {row.name for row in found.vhosts}
        found.exchanges = [
            row for row in found.exchanges if self._passes(_is_name(row.name), "exchange", row.name)
        ]
        # A queue that was declared again while its damaged row was set aside has two rows.
        last = {(row.vhost, row.name): row for row in found.queues}
        found.queues = [
            row
            for row in found.queues
            if self._passes_with_id(
                row.vhost in self._vhosts
                and _is_name(row.name)
                and last[row.vhost, row.name] is row,
                row.id,
                "queue",
                row.name,
            )
        ]
        found.bindings = [
            row
            for row in found.bindings
            if self._passes(_is_name(row.source), "binding to", row.destination)
        ]

    def parts(self) -> None:
        """Check parts of queues; those of a queue that is set aside have no owner any more."""
        found = self._found
        owners = {(row.vhost, row.id): row for row in found.queues}
        found.queue_parts = [
            row
            for row in found.queue_parts
            if self._passes_with_id(
                row.vhost in self._vhosts and _is_part(row, owners.get((row.vhost, row.owner))),
                row.id,
                "part",
                b"%d" % row.id,
            )
        ]
        found.stages = [
            row
            for row in found.stages
            if self._passes_with_id(row.vhost in self._vhosts, row.id, "stage of sink", row.sink)
        ]

    def groups_and_sinks(self) -> None:
        """Check reader groups, their members, sinks, and books of receipts."""
        found = self._found
        found.reader_groups = [
            row
            for row in found.reader_groups
            if self._passes(_is_number(row.epoch), "reader group", row.name)
        ]
        found.group_members = [
            row
            for row in found.group_members
            if self._passes(
                _is_number(row.acked) and _is_number(row.reserved),
                "part of reader group",
                row.group,
            )
        ]
        found.sinks = [
            row
            for row in found.sinks
            if self._passes(_is_number(row.batch + 1) and NO_ID not in row.stages, "sink", row.name)
        ]
        found.receipts = [
            row
            for row in found.receipts
            if self._passes_with_id(
                row.vhost in self._vhosts and _is_number(row.floor) and _are_runs(row.runs),
                row.id,
                "receipts of sink",
                row.sink,
            )
        ]

    def numbering(self) -> None:
        """Check the next ids, which are above all others."""
        found = self._found
        if not _is_id(found.next_queue_id) or not _is_id(found.next_vhost_id):
            self.lines.append("the numbering of queues and vhosts is damaged, and begins anew")
            found.has_lost_ids = True
            found.next_queue_id = found.next_vhost_id = 1
        for vhost in found.vhosts:
            found.next_vhost_id = max(found.next_vhost_id, vhost.id + 1)
        ids = [row.id for row in found.queues] + [row.id for row in found.queue_parts]
        ids += [row.id for row in found.stages] + [row.id for row in found.receipts]
        for id in ids:
            found.next_queue_id = max(found.next_queue_id, id + 1)

    def _passes_with_id(self, is_usable: bool, id: i64, kind: str, name: bytes) -> bool:
        if not _is_id(id):
            self._found.has_lost_ids = True
        elif not is_usable:
            self._found.unusable_ids.add(id)
        return self._passes(is_usable and _is_id(id), kind, name)

    def _passes(self, is_usable: bool, kind: str, name: bytes) -> bool:
        if not is_usable:
            text = name_text(name[:_NAME_MAX])
            self.lines.append(f"the definition of {kind} '{text}' is damaged and set aside")
        return is_usable


def _is_id(id: i64) -> bool:
    return 0 < id < _ID_MAX


def _is_name(name: bytes) -> bool:
    return 0 < len(name) <= _NAME_MAX


def _is_number(number: i64) -> bool:
    return 0 <= number < _NUMBER_MAX


def _are_runs(ends: list[int]) -> bool:
    """Whether `ends` are the first and the last numbers of runs that ascend and do not touch."""
    if len(ends) % 2 != 0:
        return False
    lowest = 0
    for place in range(0, len(ends), 2):
        if ends[place] < lowest or not ends[place] <= ends[place + 1] < _NUMBER_MAX:
            return False
        lowest = ends[place + 1] + 2
    return True


def _is_part(row: PutQueuePart, owner: PutQueue | None) -> bool:
    if row.owner == 0:
        return 0 <= row.number >> _BUCKET_KIND_BIT < _BUCKET_KINDS
    return owner is not None and 0 < row.number <= PRIORITY_MAX
