"""Each promise of SECURITY.md names tests that exist."""

import re

from tests.store.test_storage_facts import ROOT, is_there

ROW = re.compile(r"^\| (?!promise|-)(.*) \| (.*) \|$", re.MULTILINE)


def test_promises_have_tests_that_exist() -> None:
    rows = ROW.findall((ROOT / "SECURITY.md").read_text("utf-8"))
    assert len(rows) >= 15
    for promise, evidence in rows:
        pointers = re.findall(r"`tests/([\w/]+\.py::\w+)`", evidence)
        assert pointers, promise
        assert [pointer for pointer in pointers if not is_there(pointer)] == [], promise
