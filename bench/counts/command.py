"""`python -m bench counts`: count the instructions of the fixed trace, and compare or keep them.

The exit status is 1 when a part costs over 3 % more than the kept count. `--accept WHY` keeps the
new counts, with the reason; the file goes into the commit that causes them.
"""

import argparse
import sys
from pathlib import Path

from bench.counts.callgrind import count_instructions, environment_name
from bench.counts.kept import (
    KEPT_PATH,
    RISE_MAX,
    ReasonError,
    accepted,
    as_text,
    count_table,
    is_changed,
    kept_entries,
    risen,
)
from bench.counts.trace import PARTS
from bench.measure import MeasureError
from warrenmq.build import build_name


def complaint(parts: list[str]) -> str:
    """What to do about parts that cost too much."""
    return (
        f"{', '.join(parts)}: over {100 * RISE_MAX:.0f} % more instructions for one message than"
        f" {KEPT_PATH.name} keeps, or no kept count. Find out what costs them"
        " (docs/benchmarking.md, Instruction counts), or say why it is worth it:"
        ' make counts-accept WHY="..."'
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench counts", description=__doc__)
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="repeatable")
    parser.add_argument("--accept", metavar="WHY", help="keep the counts, for this reason")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep callgrind's files there")
    options = parser.parse_args(arguments)
    if build_name() != "compiled":
        print(f"warren is {build_name()} here: only compiled code is counted", file=sys.stderr)
        return 1
    name = environment_name()
    entries = kept_entries()
    before = entries.get(name, [])
    kept = before[-1].counts if before else {}
    try:
        if options.accept is not None:
            # Counting takes half a minute: a bad reason is refused before.
            accepted(before, {}, options.accept)
        counts = count_instructions(options.only or list(PARTS), options.keep)
        print(f"instructions for one message, {name}\n\n{count_table(kept, counts)}\n")
        if options.accept is not None:
            if not is_changed(kept, counts):
                print("nothing has changed: the kept counts stay")
                return 0
            entries[name] = accepted(before, counts, options.accept)
            KEPT_PATH.write_text(as_text(entries))
            print(f"kept in {KEPT_PATH}")
            return 0
    except (MeasureError, ReasonError) as error:
        print(f"bench counts: {error}", file=sys.stderr)
        return 1
    too_much = risen(kept, counts)
    if too_much:
        print(complaint(too_much), file=sys.stderr)
    return 1 if too_much else 0
