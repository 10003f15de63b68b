"""The log has at most one line a second about one subject."""

import time

import pytest

from warrenmq.store.disk.line_limit import LineLimit


def test_each_subject_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    lines = LineLimit()
    assert [lines.allows(subject) for subject in ("a", "a", "b", "a")] == [True, False, True, False]
    now_s[0] += 0.9
    assert not lines.allows("a")
    now_s[0] += 0.1
    assert [lines.allows("a"), lines.allows("a")] == [True, False]


def test_what_is_remembered_is_bounded() -> None:
    lines = LineLimit()
    assert all([lines.allows(f"{number}.idx") for number in range(5000)])
    assert len(lines._next_s) <= 1000
