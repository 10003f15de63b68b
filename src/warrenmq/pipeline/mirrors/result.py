"""The result of `compare-mirrors`: figures of each copy, and the differences."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobResult, json_value

# Listed differences that are printed and part of the result as JSON.
SHOWN_MAX: Final = 1000

MASTER: Final = "master"
MIRROR: Final = "mirror"
UNKNOWN: Final = "unknown"

IN_SYNC: Final = "in sync"
NOT_IN_SYNC: Final = "not in sync"
AWAY: Final = "away"


@dataclass
class CopyFigures:
    """A copy of the queue: of a node, or in a directory.

    `role` is master, mirror or unknown; `state` in sync, not in sync, away or unknown. `epoch` is
    the highest one that the copy has seen, and all its messages are below the seq id `next_seq`.
    `messages` and `bytes` of bodies are what it has, and `compared` the messages that the reference
    has, too. `differences`: rows in which this copy lacks a message, has settled it too early, or
    has another one.

    Not counted as differences: `behind`, messages of the reference that come after the end of this
    copy; `ahead`, messages of this copy that come after the end of the reference; `lacks`, messages
    of the reference that a mirror which is not in sync lacks, or that come before the first message
    of a directory, which has settled them or was not synchronised; and `marks`, messages that only
    one of both marks as delivered before.
    """

    name: str
    role: str
    state: str
    epoch: int = 0
    next_seq: int = 0
    messages: int = 0
    bytes: int = 0
    compared: int = 0
    differences: int = 0
    behind: int = 0
    ahead: int = 0
    lacks: int = 0
    marks: int = 0

    def line(self, is_reference: bool) -> str:
        """The copy in words."""
        if self.state == AWAY:
            return f"{self.name}: away, not compared"
        known = [word for word in (self.role, self.state) if word != UNKNOWN]
        who = f"{self.name} ({', '.join(known)})" if known else self.name
        line = f"{who}: {self.messages:,} messages, epoch {self.epoch}"
        if is_reference:
            line += "; the others are compared with it"
        elif self.differences:
            plural = "s" * (self.differences != 1)
            line += f"; {self.compared:,} compared: {self.differences:,} difference{plural}"
        else:
            line += f"; {self.compared:,} compared: equal"
        missing = "before its first one are not there: it has settled them, or was not in sync"
        if self.state == NOT_IN_SYNC:
            missing = "are not there yet"
        notes = [
            (self.lacks, missing),
            (self.behind, "came after its end"),
            (self.ahead, "came since"),
            (self.marks, "are marked as delivered in one of both only"),
        ]
        return line + "".join(f"; {count:,} {text}" for count, text in notes if count)


@dataclass
class CompareMirrorsResult(JobResult):
    """The copies of a queue, the reference first, and how they differ.

    `differences` counts the rows of the table, by kind in `kinds`; `table` is its Parquet file,
    None if none was wanted. `doubtful`: messages that one copy lacked in the first round of
    snapshots, and that a second one could not judge, since they had left the queue. `rounds`:
    rounds of snapshots, 0 for directories. `rows` are the first SHOWN_MAX differences.
    """

    vhost: str
    queue: str
    copies: list[CopyFigures]
    differences: int
    kinds: dict[str, int]
    doubtful: int
    rounds: int
    table: Path | None
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether all copies were compared in all their messages."""
        return not self.doubtful and all(
            copy.state not in (AWAY, NOT_IN_SYNC) and not copy.behind and not copy.lacks
            for copy in self.copies
        )

    @property
    def exit_code(self) -> int:
        """0: the copies are equal; 1: they differ, or not all of them could be compared whole."""
        return OK_EXIT if self.is_whole and not self.differences else FOUND_EXIT

    def as_json(self) -> dict[str, Any]:
        """The figures and the first SHOWN_MAX differences."""
        is_equal = self.is_whole and not self.differences
        rows = [json_value(row) for row in self.rows]
        return super().as_json() | {"equal": is_equal, "rows": rows}

    def lines(self) -> list[str]:
        """The copies and the differences as text."""
        lines = [copy.line(place == 0) for place, copy in enumerate(self.copies)]
        lines += [_line(row) for row in self.rows]
        if self.differences > len(self.rows):
            lines.append(f"and {self.differences - len(self.rows):,} more")
        if self.doubtful:
            lines.append(
                f"{self.doubtful:,} messages could not be judged: they left the queue, or the "
                "copies changed their roles, before a second look"
            )
        name = f"queue '{self.queue}' in vhost '{self.vhost}'"
        if self.differences:
            kinds = [f"{count:,} {kind}" for kind, count in sorted(self.kinds.items())]
            lines.append(f"the copies of {name} are not equal: {', '.join(kinds)}")
        elif self.is_whole:
            lines.append(f"the copies of {name} are equal")
        else:
            lines.append(f"no differences in what could be compared of {name}")
        return lines


def _line(row: dict[str, Any]) -> str:
    where = f"seq {row['seq']}" + (f", priority {row['priority']}" if row["priority"] else "")
    if row["kind"] == "missing":
        text = f"{row['copy']} lacks the message that {row['other']} has"
    elif row["kind"] == "settled":
        text = f"{row['copy']} has settled the message that {row['other']} has"
    else:
        text = f"{row['copy']} and {row['other']} differ in {', '.join(row['differs'])}"
    return f"{where}: {text} (routing key '{row['routing_key']}', {row['size']} bytes)"
