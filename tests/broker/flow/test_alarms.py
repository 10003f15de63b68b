"""Alarms: limits, measurements, start times and log lines.

tests/protocol/test_blocked.py tests their effect on clients.
"""

import logging

import pytest

from warrenmq.broker.flow.alarm_state import OFF
from warrenmq.broker.flow.alarms import Alarms

GIB = 1 << 30


@pytest.fixture
def alarms() -> Alarms:
    alarms = Alarms(8 * GIB, 8 * GIB, [], lambda: None)
    alarms.set_memory_limit(-1, 0.4, 0)
    alarms.set_disk_limit(50_000_000, 0, 0)
    return alarms


def test_limits_are_absolute_or_relative(alarms: Alarms) -> None:
    assert alarms.memory_limit_bytes == int(8 * GIB * 0.4)
    alarms.set_memory_limit(GIB, 0.9, 0)
    assert alarms.memory_limit_bytes == GIB
    # The memory limit never exceeds the memory of the machine.
    alarms.set_memory_limit(9 * GIB, 0.9, 0)
    assert alarms.memory_limit_bytes == 8 * GIB
    assert alarms.disk_limit_bytes == 50_000_000
    alarms.set_disk_limit(-1, 1.5, 0)
    assert alarms.disk_limit_bytes == 12 * GIB
    # A limit of 0 is a limit.
    alarms.set_disk_limit(0, 1.5, 0)
    assert alarms.disk_limit_bytes == 0


def test_before_the_first_measurement_there_is_no_alarm(alarms: Alarms) -> None:
    alarms.set_memory_limit(0, 0, 0)
    alarms.set_disk_limit(1 << 60, 0, 0)
    assert not alarms.is_on


def test_the_edges(alarms: Alarms) -> None:
    limit = alarms.memory_limit_bytes
    alarms.memory_used(limit, 5)
    assert not alarms.is_on
    alarms.memory_used(limit + 1, 6)
    assert (alarms.is_on, alarms.memory_since_ms, alarms.disk_since_ms) == (True, 6, OFF)
    alarms.memory_used(limit + 2, 7)
    assert alarms.memory_since_ms == 6
    alarms.memory_used(limit, 8)
    assert (alarms.is_on, alarms.memory_since_ms) == (False, OFF)
    alarms.disk_free(50_000_000, 9)
    assert not alarms.is_on
    alarms.disk_free(49_999_999, 10)
    assert (alarms.is_on, alarms.disk_since_ms) == (True, 10)


def test_a_changed_limit_counts_at_once(alarms: Alarms) -> None:
    alarms.memory_used(GIB, 1)
    alarms.disk_free(GIB, 1)
    alarms.set_memory_limit(GIB - 1, 0, 2)
    assert alarms.memory_since_ms == 2
    alarms.set_disk_limit(GIB + 1, 0, 3)
    assert alarms.disk_since_ms == 3
    assert alarms.reason() == b"low on memory & disk"
    alarms.set_memory_limit(GIB, 0, 4)
    assert (alarms.is_on, alarms.reason()) == (True, b"low on disk")
    alarms.set_disk_limit(GIB, 0, 5)
    assert not alarms.is_on


def test_the_log_tells_an_operator_what_to_do(
    alarms: Alarms, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    alarms.memory_used(4 * GIB, 1000)
    alarms.disk_free(1000, 1000)
    alarms.memory_used(GIB, 61_000)
    alarms.disk_free(GIB, 63_500)
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert levels == [
        (
            "WARNING",
            "memory alarm: 4294967296 bytes are used, 3435973836 are allowed; publishers are blocked until it clears",
        ),
        (
            "WARNING",
            "disk alarm: 1000 bytes are free, the limit is 50000000; publishers are blocked until it clears",
        ),
        (
            "INFO",
            "memory alarm cleared after 60 s: 1073741824 bytes are used, 3435973836 are allowed",
        ),
        ("INFO", "disk alarm cleared after 62 s: 1073741824 bytes are free, the limit is 50000000"),
    ]
