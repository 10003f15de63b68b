"""The problems that a check of a data directory finds, by kind, and the figures beside them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

# Kinds of problems.
DAMAGED: Final = "damaged"
MISSING_FILE: Final = "missing_file"
MISSING_CONTENT: Final = "missing_content"
WRONG_COUNT: Final = "wrong_count"
JOURNAL_GAP: Final = "journal_gap"
NOT_OURS: Final = "not_ours"
NO_DEFINITION: Final = "no_definition"
NO_DIRECTORY: Final = "no_directory"
DEFINITIONS: Final = "definitions"
NO_CHECKPOINT: Final = "no_checkpoint"

# At most this many problems of one kind are listed; the others are counted only.
LISTED_MAX: Final = 1000


@dataclass
class Problem:
    """One inconsistency, which concerns `count` messages, records or files.

    Its place, as far as it is known: a file of the vhost, bytes from `start` to `end`, a queue's
    id, a seq id.
    """

    kind: str
    vhost: str
    text: str
    count: int = 1
    path: str | None = None
    start: int | None = None
    end: int | None = None
    queue_id: int | None = None
    seq: int | None = None

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {"kind": self.kind, "vhost": self.vhost, "text": self.text, "count": self.count}


@dataclass
class CheckResult:
    """The result of a check. Sizes in bytes."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem_counts: Counter[str] = field(default_factory=Counter)
    queues: int = 0
    messages: int = 0
    contents: int = 0
    bytes_read: int = 0
    listed_max: int = LISTED_MAX

    @property
    def is_clean(self) -> bool:
        """True if the check found no problem."""
        return not self.problem_counts

    def add(self, problem: Problem) -> None:
        """Count a problem, and list it unless LISTED_MAX of its kind are listed."""
        listed = sum(known.kind == problem.kind for known in self.problems[-self.listed_max :])
        self.problem_counts[problem.kind] += problem.count
        if listed < self.listed_max:
            self.problems.append(problem)

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "clean": self.is_clean,
            "problem_counts": dict(sorted(self.problem_counts.items())),
            "problems": [problem.as_json() for problem in self.problems],
            "notes": self.notes,
            "queues": self.queues,
            "messages": self.messages,
            "contents": self.contents,
            "bytes_read": self.bytes_read,
        }
