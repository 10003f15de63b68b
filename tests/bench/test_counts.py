"""One message costs no more instructions than the repository keeps, or somebody has said why."""

import subprocess
from pathlib import Path

import pytest

from bench.counts.callgrind import count_instructions, environment_name, valgrind
from bench.counts.command import complaint
from bench.counts.kept import (
    KEPT_PATH,
    RISE_MAX,
    Entry,
    ReasonError,
    accepted,
    as_text,
    check_reasons,
    kept_entries,
    read_entries,
    risen,
)
from bench.counts.trace import PARTS, run_part
from tests.support.skips import does_not_apply
from warrenmq.build import build_name

ROOT = Path(__file__).parent.parent.parent
WHY = "Parsing of headers checks every length."


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_part_of_the_trace_costs_more_than_the_kept_count() -> None:
    if build_name() != "compiled":
        does_not_apply("only the instructions of the compiled build are counted")
    if valgrind() is None:
        pytest.skip("valgrind is not installed")
    kept = kept_entries().get(environment_name())
    if kept is None:
        does_not_apply(
            f"{KEPT_PATH.name} has no counts of {environment_name()}: make counts-accept adds them"
        )
    counts = count_instructions(list(PARTS))
    too_much = risen(kept[-1].counts, counts)
    assert not too_much, f"{complaint(too_much)}\nkept: {kept[-1].counts}\nnow: {counts}"


@pytest.mark.parametrize("name", PARTS)
def test_each_part_moves_its_messages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The figure of a trace that does nothing would be good; `run_part` raises.
    monkeypatch.setattr(PARTS[name], "messages", 1500)
    run_part(name, tmp_path)


def test_kept_counts_have_reasons_and_are_never_changed() -> None:
    entries = kept_entries()
    for found in entries.values():
        check_reasons(found)
    # A commit may only add entries: else a count could rise without a new reason.
    text = committed("HEAD")
    if text == KEPT_PATH.read_text():
        text = committed("HEAD^")
    if text is None:
        does_not_apply("there is no commit before this one to compare with")
    for name, found in read_entries(text).items():
        assert entries[name][: len(found)] == found, f"old entries of {name} were changed"


def committed(revision: str) -> str | None:
    """The text of the kept counts in a commit; None when git, commit or file is missing."""
    path = KEPT_PATH.relative_to(ROOT).as_posix()
    done = subprocess.run(
        ["git", "show", f"{revision}:{path}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def test_a_part_needs_a_reason_above_three_percent_and_when_it_is_new() -> None:
    kept = {"flow": 1000, "topic": 2000}
    assert risen(kept, {"flow": 1030, "topic": 1000}) == []
    assert risen(kept, {"flow": 1031, "topic": 2000}) == ["flow"]
    assert risen(kept, {"flow": 1000, "drain": 1}) == ["drain"]
    assert RISE_MAX == 0.03


def test_accepting_needs_a_reason_that_nobody_gave_before() -> None:
    first = accepted([], {"flow": 1000, "topic": 2000}, WHY)
    second = accepted(first, {"flow": 1100}, "Flow counts bytes  by queue.")
    assert second[:1] == first
    assert second[1] == Entry("Flow counts bytes by queue.", {"flow": 1100, "topic": 2000})
    for why in ("", "slower", WHY, WHY.upper()):
        with pytest.raises(ReasonError):
            accepted(second, {"flow": 1200}, why)
    assert read_entries(as_text({"here": second})) == {"here": second}
