"""The demo's publisher has messages in flight even when confirms arrive after the kill."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika

from demo.corpus import SourceFile
from demo.publisher import Publisher


class FakeConnection:
    """Counts publishes, and calls delayed callbacks at once."""

    def __init__(self) -> None:
        self.ioloop = self
        self.published = 0

    def call_later(self, _delay_s: float, callback: Callable[[], None]) -> None:
        callback()

    def basic_publish(self, *_arguments: Any, **_more: Any) -> None:
        self.published += 1


def test_confirms_that_arrive_after_the_kill_leave_something_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(b"body")
    files = [SourceFile(number, path, "file.txt", ".txt", 4, "") for number in range(40)]
    kills: list[int] = []
    connection = FakeConnection()
    publisher = Publisher(files, lambda _count: None, 3, lambda: kills.append(connection.published))
    publisher._channel = publisher._connection = connection
    publisher._fill()
    sent = connection.published
    assert 0 < sent < len(files) // 2
    # The broker has confirmed these messages, and the next ones too, when the signal hits it.
    for _ in range(2):
        ack = pika.spec.Basic.Ack(connection.published, multiple=True)
        publisher._on_confirm(SimpleNamespace(method=ack))
    assert len(kills) == 1
    assert publisher._in_flight
