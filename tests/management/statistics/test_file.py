"""The history on disk: read again by the next process, and lost without harm."""

from pathlib import Path

import pytest

from tests.management.statistics.fed import NODE_NAME, Fed, told
from warrenmq.admin.protocol.changes import CHANNEL, EXCHANGE, NODE, QUEUE
from warrenmq.management.statistics.figures import VHOST
from warrenmq.management.statistics.file import HistoryFile
from warrenmq.management.statistics.history import Range
from warrenmq.management.statistics.retention import TICK_MS
from warrenmq.management.statistics.statistics import Statistics

RANGES = (Range(600, 5), Range(3600, 60), Range(28_800, 600))


class Kept(Fed):
    """A feed whose statistics are kept in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.file = HistoryFile(path, self.statistics)

    def traffic(self, ticks: int, first: int = 0) -> None:
        """Some ticks of traffic, counted from `first`; a node tells of everything at first."""
        for tick in range(first, first + ticks):
            self.tell(NODE, told(NODE, 1, NODE_NAME, publish=10 * tick, mem_used=tick % 7))
            self.tell(EXCHANGE, told(EXCHANGE, 1, "", publish_in=10 * tick))
            self.tell(QUEUE, told(QUEUE, 1, "q", publish=10 * tick, messages_ready=tick % 5))
            if tick == first:
                self.tell(QUEUE, told(QUEUE, 2, "idle", publish=3))
            self.tell(CHANNEL, told(CHANNEL, 1, "c (1)", publish=10 * tick))
            self.tick()

    def restart(self) -> None:
        """The process ends, and the next one begins."""
        self.file.close()
        self.statistics = Statistics(clock_ms=lambda: self.now_ms)
        self.file = HistoryFile(self.path, self.statistics)

    def shown(self) -> list[object]:
        """All that a request could see, but for rates."""
        found: list[object] = []
        objects = ((NODE, "", ""), (QUEUE, "/", "q"), (QUEUE, "/", "idle"), (VHOST, "/", "/"))
        for kind, vhost, name in objects:
            view = self.statistics.find(kind, vhost, name)
            found.append(self.statistics.idle_since_ms(kind, vhost, name))
            for figure in ("publish", "messages_ready"):
                found.append(view.value(figure))
                for asked in RANGES:
                    details = view.details(figure, asked=asked)
                    found.append([details[each] for each in ("samples", "avg", "avg_rate")])
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "new" / "statistics.sqlite")


def test_the_next_process_goes_on_as_if_it_were_the_same(kept: Kept, tmp_path: Path) -> None:
    other = Kept(tmp_path / "other.sqlite")
    for fed in (kept, other):
        fed.traffic(300)
    kept.restart()
    for fed in (kept, other):
        fed.traffic(50, first=300)
    assert kept.shown() == other.shown()
    other.file.close()


def test_the_samples_of_many_queues_are_read_again(kept: Kept) -> None:
    def tick(count: int) -> None:
        done = {"publish": count, "deliver": count, "ack": count}
        kept.tell(QUEUE, *(told(QUEUE, each, f"q{each}", **done) for each in range(300)))
        kept.tick()

    tick(0)
    tick(1)
    kept.restart()
    tick(3)
    samples = kept.statistics.find(QUEUE, "/", "q299").details("ack", asked=Range(600, 5))
    assert [each["sample"] for each in samples["samples"]] == [3, 1, 0]
    assert kept.statistics.nodes[NODE_NAME].short.slots > 512
    kept.file.close()


def test_a_pause_between_two_processes_is_a_gap(kept: Kept) -> None:
    kept.traffic(10)
    kept.restart()
    kept.now_ms += 20 * TICK_MS
    kept.traffic(5, first=40)
    queue = kept.statistics.find(QUEUE, "/", "q")
    samples = queue.details("publish", asked=Range(600, 5))["samples"]
    values = [each["sample"] for each in samples]
    assert values == [440, 430, 420, 410, 400, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0]
    kept.file.close()


def test_a_node_that_starts_again_meanwhile_goes_on_counting(kept: Kept) -> None:
    kept.traffic(5)
    kept.restart()
    kept.started_ms = kept.now_ms
    kept.traffic(2)
    statistics = kept.statistics
    assert statistics.find(QUEUE, "/", "q").value("publish") == 50
    assert statistics.find(NODE).value("publish") == 50
    assert statistics.find(QUEUE, "/", "q").rate("publish") == 2.0
    kept.file.close()


def test_what_is_gone_meanwhile_is_forgotten(kept: Kept) -> None:
    kept.traffic(5)
    kept.restart()
    kept.tell(EXCHANGE, told(EXCHANGE, 1, ""))
    kept.tell(QUEUE, told(QUEUE, 2, "idle", publish=3))
    kept.tick()
    assert kept.statistics.find(QUEUE, "/", "q").objects == []
    assert kept.statistics.find(VHOST, "/").value("messages_ready") == 0
    kept.restart()
    assert kept.statistics.find(QUEUE, "/", "q").objects == []
    assert kept.statistics.find(QUEUE, "/", "idle").value("publish") == 3
    kept.file.close()


def test_a_reset_empties_the_file(kept: Kept) -> None:
    kept.traffic(5)
    kept.restart()
    kept.statistics.clear()
    kept.traffic(1, first=5)
    kept.restart()
    kept.traffic(1, first=6)
    queue = kept.statistics.find(QUEUE, "/", "q")
    samples = queue.details("publish", asked=Range(600, 5))["samples"]
    assert [each["sample"] for each in samples] == [60, 50]
    kept.file.close()


@pytest.mark.parametrize("damage", [b"no database" * 200, b""])
def test_a_file_that_is_damaged_costs_only_the_history(kept: Kept, damage: bytes) -> None:
    kept.traffic(3)
    kept.file.close()
    kept.path.write_bytes(damage)
    kept.restart()
    assert kept.statistics.nodes == {}
    kept.traffic(3)
    kept.restart()
    assert kept.statistics.find(QUEUE, "/", "q").value("publish") == 20
    kept.file.close()
