"""A run of the tests reports every test that it leaves out, and each commit tries new cases."""

import pytest

from tests.support import explored
from tests.support.skips import SkipPolicy, does_not_apply

pytest_plugins = ["pytester"]

INNER = """
import pytest
from tests.support.skips import does_not_apply

def test_runs():
    pass

def test_says_that_it_has_no_meaning():
    does_not_apply("needs a socket")

def test_lacks_a_tool():
    pytest.skip("no such tool")

@pytest.mark.skipif(True, reason="no such package")
def test_is_marked():
    pass
"""


def outcomes(pytester: pytest.Pytester, is_strict: bool) -> tuple[dict[str, int], str]:
    pytester.makepyfile(
        test_inner=INNER, test_left_out="import pytest\npytest.importorskip('no_such_module')\n"
    )
    result = pytester.inline_run(
        "--continue-on-collection-errors",
        "-p",
        "no:hypothesispytest",
        plugins=[SkipPolicy(is_strict)],
    )
    passed, skipped, failed = result.listoutcomes()
    return {"passed": len(passed), "skipped": len(skipped), "failed": len(failed)}, repr(failed)


def test_where_nothing_may_be_missing_a_missing_tool_fails(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, failed = outcomes(pytester, True)
    assert counts == {"passed": 1, "skipped": 1, "failed": 3}
    assert all(name in failed for name in ("test_lacks_a_tool", "test_is_marked", "test_left_out"))
    summary = capsys.readouterr().out
    assert "skips: 4" in summary
    assert "1 no meaning here: needs a socket" in summary


def test_elsewhere_it_is_skipped_and_counted(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, _ = outcomes(pytester, False)
    assert counts == {"passed": 1, "skipped": 4, "failed": 0}
    summary = capsys.readouterr().out
    assert "1 no such tool" in summary


def test_each_commit_has_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explored.commit_number() == explored.commit_number() > 0
    monkeypatch.setattr(explored, "commit_number", lambda: 7)
    assert explored.explored_seeds(3) == range(
        explored.FIRST_EXPLORED + 7, explored.FIRST_EXPLORED + 10
    )


def test_the_reason_names_no_tool() -> None:
    with pytest.raises(pytest.skip.Exception, match="no meaning here: for once"):
        does_not_apply("for once")
