"""Skips: a test may skip itself where it has no meaning; under CI a missing tool is a failure.

`does_not_apply(reason)` skips a test that has no meaning in this form: another build, another
broker, a link without a socket. Every other skip says that the machine lacks something (a package,
a permission, a registry). On a developer's machine such a test is skipped with its reason; under CI
it fails, since a suite that silently shrinks proves less each time. The end of the run counts all
skips by reason.
"""

from collections import Counter
from collections.abc import Generator
from typing import NoReturn

import pytest

NO_MEANING_HERE = "no meaning here: "
# Title of the report section that holds the reason of a skip, kept when the skip becomes a failure.
SECTION = "reason of a skip"


def does_not_apply(reason: str) -> NoReturn:
    """Skip this test: `reason` says why it has no meaning for this build or this broker."""
    pytest.skip(NO_MEANING_HERE + reason)


def has_no_meaning(condition: bool, reason: str) -> pytest.MarkDecorator:
    """A mark that skips a test when `condition` holds, like `does_not_apply`."""
    return pytest.mark.skipif(condition, reason=NO_MEANING_HERE + reason)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a skipped test was skipped, without the place."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


class SkipPolicy:
    """A pytest plugin; `is_strict`: each skip but `does_not_apply` is a failure."""

    def __init__(self, is_strict: bool) -> None:
        self.is_strict = is_strict
        # Skipped tests by reason.
        self.reasons: Counter[str] = Counter()
        # Files that skip themselves: (file, reason).
        self.files: set[tuple[str, str]] = set()

    def judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Record the reason of a skip in its report.

        Under `is_strict` the test fails, unless `does_not_apply` skipped it.
        """
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = reason_of(report)
        report.sections.append((SECTION, reason))
        if self.is_strict and not reason.startswith(NO_MEANING_HERE):
            report.outcome = "failed"
            report.longrepr = f"under CI nothing may be missing, but: {reason}"

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Judge a file that skips itself for lack of a package."""
        report = yield
        self.judge(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge a test that is skipped by itself, by a mark or by a fixture."""
        report = yield
        self.judge(report)
        return report

    # With pytest-xdist, workers make the reports; the hooks below run in the process that prints
    # the summary.

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a skipped file once: every worker collects it and reports it."""
        self.files |= {(report.nodeid, text) for name, text in report.sections if name == SECTION}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reasons.update(text for name, text in report.sections if name == SECTION)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the number of skips by reason."""
        reasons = self.reasons + Counter(reason for _, reason in self.files)
        if not reasons:
            return
        terminalreporter.section(f"skips: {reasons.total()}")
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            terminalreporter.write_line(f"{count:5} {reason}")
