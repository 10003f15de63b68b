"""The counts that the repository keeps, in `instructions.json`, and why each change was accepted.

The file has a list of entries for each environment (`callgrind.environment_name`). An entry has the
instructions for one message by part, and the reason for which somebody accepted them. The last
entry is the one in force. Entries are added and never changed, so `git log -p` of the file shows
each reason in the commit that needed it, and a test compares the file with the commit before.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.table import line

KEPT_PATH: Final = Path(__file__).parent / "instructions.json"
# A count that is higher than the kept one by more than this share needs a reason.
RISE_MAX: Final = 0.03
# Two runs of one build differ by less than this share.
NOISE: Final = 0.002
# A shorter reason cannot say what costs more and what it buys.
WHY_MIN: Final = 20


class ReasonError(Exception):
    """The reason for an entry is missing, too short or another entry's."""


@dataclass(frozen=True)
class Entry:
    """Instructions for one message by part, and why they were accepted."""

    why: str
    counts: dict[str, int]


Entries = dict[str, list[Entry]]


def read_entries(text: str) -> Entries:
    """The entries of all environments, oldest first."""
    found: dict[str, list[dict[str, object]]] = json.loads(text)
    entries: Entries = {}
    for name, rows in found.items():
        entries[name] = []
        for row in rows:
            counts = row["counts"]
            assert isinstance(counts, dict)
            entries[name].append(Entry(str(row["why"]), counts))
    return entries


def kept_entries() -> Entries:
    """The entries of the file; none without a file."""
    return read_entries(KEPT_PATH.read_text()) if KEPT_PATH.exists() else {}


def as_text(entries: Entries) -> str:
    """`entries` as the JSON text that `instructions.json` holds."""
    rows = {
        name: [{"why": entry.why, "counts": entry.counts} for entry in found]
        for name, found in sorted(entries.items())
    }
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def check_reasons(entries: list[Entry]) -> None:
    """Raise ReasonError unless each entry has a reason of its own."""
    seen: set[str] = set()
    for entry in entries:
        why = " ".join(entry.why.split())
        if len(why) < WHY_MIN:
            raise ReasonError(f"a reason needs {WHY_MIN} characters at least: {why!r}")
        if why.lower() in seen:
            raise ReasonError(f"this reason was given before: {why!r}")
        seen.add(why.lower())


def accepted(entries: list[Entry], counts: dict[str, int], why: str) -> list[Entry]:
    """`entries` and one more with `counts`. ReasonError when `why` is no new reason.

    Parts that were not counted keep their counts.
    """
    kept = entries[-1].counts if entries else {}
    longer = [*entries, Entry(" ".join(why.split()), {**kept, **counts})]
    check_reasons(longer)
    return longer


def risen(kept: dict[str, int], counts: dict[str, int]) -> list[str]:
    """The parts that need a reason: new ones, and those that cost over RISE_MAX more than kept."""
    return [
        part
        for part, count in counts.items()
        if part not in kept or count > kept[part] * (1 + RISE_MAX)
    ]


def is_changed(kept: dict[str, int], counts: dict[str, int]) -> bool:
    """Whether a count differs from the kept one by more than two runs may differ."""
    return any(
        part not in kept or abs(count - kept[part]) > kept[part] * NOISE
        for part, count in counts.items()
    )


def count_table(kept: dict[str, int], counts: dict[str, int]) -> str:
    """A table of the parts: kept and counted instructions for one message, and the change."""
    lines = [line(["part", "kept", "now", "change"]), line(["---", "---:", "---:", "---:"])]
    for part, count in counts.items():
        before = kept.get(part)
        change = "new" if before is None else f"{100 * (count - before) / before:+.1f} %"
        lines.append(line([part, "-" if before is None else f"{before:,}", f"{count:,}", change]))
    return "\n".join(lines)
