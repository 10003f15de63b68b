"""The table of differences between the outcomes of both brokers."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.peers.outcomes import FAILED, MISSING, PASSED, SKIPPED

_COLUMNS: Final = (PASSED, FAILED, SKIPPED)


@dataclass
class SuiteReport:
    """The outcomes of one suite; `reason`: why it could not run, or ""."""

    suite: str
    version: str = ""
    reason: str = ""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    # Tests that pass on the one broker and fail, or have no result, on the other.
    only_warren_fails: list[str] = field(default_factory=list)
    only_rabbitmq_fails: list[str] = field(default_factory=list)
    both_fail: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report for a file."""
        return asdict(self)


def compare(
    suite: str, version: str, rabbitmq: dict[str, str], warren: dict[str, str]
) -> SuiteReport:
    """Compare the outcomes of every test by name."""
    report = SuiteReport(suite, version)
    for name, outcomes in (("rabbitmq", rabbitmq), ("warren", warren)):
        values = list(outcomes.values())
        report.counts[name] = {column: values.count(column) for column in _COLUMNS}
    for test in sorted(rabbitmq.keys() | warren.keys()):
        there, here = rabbitmq.get(test, MISSING), warren.get(test, MISSING)
        if there == PASSED and here != PASSED:
            report.only_warren_fails.append(test)
        elif here == PASSED and there != PASSED:
            report.only_rabbitmq_fails.append(test)
        elif FAILED in (there, here):
            report.both_fail.append(test)
    if not rabbitmq or not warren:
        report.reason = "the suite wrote no results; see its output.txt"
    return report


def table(reports: list[SuiteReport]) -> str:
    """The reports as text: a line of counts a suite, then the names of tests that differ."""
    head = ("suite", "version", "RabbitMQ", "warren", "fails only on warren", "only on RabbitMQ")
    rows = [head]
    for report in reports:
        counts = [_counts(report.counts.get(name, {})) for name in ("rabbitmq", "warren")]
        only = (str(len(report.only_warren_fails)), str(len(report.only_rabbitmq_fails)))
        rows.append((report.suite, report.version, counts[0], counts[1], *only))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append("(passed / failed / skipped)")
    for report in reports:
        if report.reason:
            lines.append(f"{report.suite}: {report.reason}")
        for title, tests in (
            ("fails only on warren", report.only_warren_fails),
            ("fails only on RabbitMQ", report.only_rabbitmq_fails),
            ("fails on both", report.both_fail),
        ):
            lines += [f"{report.suite}, {title}: {test}" for test in tests]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return " / ".join(str(counts[column]) for column in _COLUMNS) if counts else "-"
