"""Outcomes of other people's suites are read as their runners write them, and compared by name."""

from pathlib import Path

from tests.peers.differences import compare, table
from tests.peers.outcomes import read_outcomes

OF_PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" tests="4">
<testcase classname="tests.test_amqp.TestCase" name="test_get[plain]" time="0.1" />
<testcase classname="tests.test_amqp" name="test_tls" time="0.1"><skipped message="no TLS" /></testcase>
<testcase classname="tests.test_amqp" name="test_close"><failure message="assert 0">..</failure></testcase>
<testcase classname="tests.test_amqp" name="test_end" time="0.1" />
<testcase classname="tests.test_amqp" name="test_end"><error message="at teardown">..</error></testcase>
</testsuite></testsuites>
"""

# node 20 names some suites "undefined", and does not say which file a test is in.
OF_NODE = """<?xml version="1.0" encoding="utf-8"?>
<testsuites>
  <undefined name="Callback API">
    <testsuite name="connect"><testcase name="at all" time="0.1" classname="test"/></testsuite>
  </undefined>
  <testsuite name="connect"><testcase name="at all" time="0.1" classname="test"/></testsuite>
  <testsuite name="connect"><testcase name="at all" classname="test"><failure message="no"/></testcase></testsuite>
</testsuites>
"""


def test_outcomes_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(OF_PYTEST)
    assert read_outcomes(tmp_path / "results.xml") == {
        "tests.test_amqp.TestCase.test_get[plain]": "passed",
        "tests.test_amqp.test_tls": "skipped",
        "tests.test_amqp.test_close": "failed",
        "tests.test_amqp.test_end": "failed",
    }


def test_outcomes_of_node(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(OF_NODE)
    assert read_outcomes(tmp_path / "results.xml") == {
        "Callback API > connect > at all": "passed",
        "connect > at all": "passed",
        "connect > at all (2)": "failed",
    }


def test_a_test_differs_when_it_passes_on_one_broker_only(tmp_path: Path) -> None:
    rabbitmq = {"a": "passed", "b": "passed", "c": "failed", "d": "failed", "e": "passed"}
    warren = {"a": "passed", "b": "failed", "c": "passed", "d": "failed", "f": "passed"}
    report = compare("pika", "1.4", rabbitmq, warren)
    assert report.only_warren_fails == ["b", "e"]
    assert report.only_rabbitmq_fails == ["c", "f"]
    assert report.both_fail == ["d"]
    assert report.counts["warren"] == {"passed": 3, "failed": 2, "skipped": 0}
    lines = table([report]).splitlines()
    assert lines[1].replace(" ", "") == "pika1.43/2/03/2/022"
    assert "pika, fails only on warren: b" in lines
    # A suite without results is no success.
    assert compare("pika", "1.4", rabbitmq, read_outcomes(tmp_path / "none.xml")).reason
