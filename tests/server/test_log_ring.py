"""The last entries of the log in memory: bounds, filters, and names that would hide something."""

import logging
from collections.abc import Iterator

import pytest

from warrenmq.server.log.ring import CHARACTERS_MAX, ENTRIES_MAX, TEXT_MAX, LogRing

ALL = (0, 1 << 62, 0, "", ENTRIES_MAX)


@pytest.fixture
def ring() -> LogRing:
    return LogRing()


@pytest.fixture
def log(ring: LogRing) -> Iterator[logging.Logger]:
    logger = logging.Logger("warren.test")  # noqa: LOG001  # one without other outputs
    logger.addHandler(ring)
    yield logger
    logger.removeHandler(ring)


def texts(ring: LogRing, *, after: int = 0, level: int = 0, part: str = "") -> list[str]:
    return [each.text for each in ring.find(after, 1 << 62, level, part, 10).entries]


def test_the_newest_come_first_and_older_ones_follow_page_by_page(
    ring: LogRing, log: logging.Logger
) -> None:
    assert ring.find(*ALL) == ([], False, 0, 0)
    for number in range(5):
        log.info("line %d", number)
    first = ring.find(0, 1 << 62, 0, "", 2)
    assert [each.text for each in first.entries] == ["line 4", "line 3"]
    assert first.has_more and first.last == first.entries[0].number
    second = ring.find(0, first.entries[-1].number, 0, "", 3)
    assert [each.text for each in second.entries] == ["line 2", "line 1", "line 0"]
    assert not second.has_more and second.first == second.entries[-1].number
    assert texts(ring, after=first.entries[-1].number) == ["line 4"]
    numbers = [each.number for each in ring.find(*ALL).entries]
    assert numbers == sorted(set(numbers), reverse=True)


def test_filters(ring: LogRing, log: logging.Logger) -> None:
    log.info("Ünder way")
    log.warning("disk")
    try:
        raise OSError("Disk full")
    except OSError:
        log.exception("failed")
    assert texts(ring, level=logging.WARNING) == ["failed", "disk"]
    assert texts(ring, part="DISK") == ["failed", "disk"]
    assert texts(ring, part="ünder") == ["Ünder way"]
    assert texts(ring, part="warren.TEST", level=logging.ERROR) == ["failed"]
    (entry,) = ring.find(0, 1 << 62, 0, "full", 1).entries
    assert entry.stack.startswith("Traceback") and entry.stack.endswith("OSError: Disk full")


def test_it_is_bounded_in_entries_and_characters(ring: LogRing, log: logging.Logger) -> None:
    for number in range(ENTRIES_MAX + 3):
        log.info("%d", number)
    assert len(ring.find(*ALL).entries) == ENTRIES_MAX
    for _ in range(CHARACTERS_MAX // TEXT_MAX + 3):
        log.info("x" * (TEXT_MAX + 9))
    kept = ring.find(*ALL).entries
    assert sum([each.size for each in kept]) == CHARACTERS_MAX
    assert {len(each.text) for each in kept} == {TEXT_MAX}


def test_characters_that_nobody_sees_are_escaped(ring: LogRing, log: logging.Logger) -> None:
    log.info("queue '%s'", "a\x1b[31m\u202egnp.exe\r\u2028\udc80")
    assert texts(ring) == [r"queue 'a\x1b[31m\u202egnp.exe\r\u2028\udc80'"]
    log.info("closing:\nlost")
    assert texts(ring)[0] == "closing:\nlost"


def test_a_line_whose_arguments_do_not_fit_costs_that_line_only(
    ring: LogRing, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.info("%d", "x")
    log.info("next")
    assert texts(ring) == ["next"]
