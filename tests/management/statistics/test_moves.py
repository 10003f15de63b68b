"""The history of a queue whose master moves to another node."""

from pathlib import Path

import msgspec

from tests.management.statistics.fed import Fed, told
from warrenmq.admin.protocol.changes import NODE, QUEUE, ChangedObject
from warrenmq.management.rows import Row
from warrenmq.management.statistics.figures import VHOST
from warrenmq.management.statistics.file import HistoryFile
from warrenmq.management.statistics.history import Range
from warrenmq.management.statistics.view import View

A, B = "a@here", "b@here"
MINUTE = Range(60, 5)


def queue(epoch: int, /, *, number: int = 1, birth: int = 7, **figures: int) -> ChangedObject:
    """The queue `q`, as its master of an epoch tells of it."""
    changed = told(QUEUE, number, "q", **figures)
    return msgspec.structs.replace(changed, birth=birth, epoch=epoch)


def fed_twice(silent: int = 0) -> Fed:
    """Node A has the queue, and node B none, after three ticks; node B misses the first ones."""
    fed = Fed()
    for tick, publish in enumerate((100, 110, 120)):
        fed.tell(NODE, told(NODE, 1, A), node=A)
        fed.tell(QUEUE, queue(1, publish=publish, messages_ready=publish), node=A)
        if tick < silent:
            fed.tick(A)
        else:
            fed.tell(NODE, told(NODE, 1, B), node=B)
            fed.tick(A, B)
    return fed


def samples(view: View, name: str) -> list[int]:
    """The samples of a figure, the oldest first."""
    return [each["sample"] for each in reversed(view.details(name, asked=MINUTE)["samples"])]


def shown(fed: Fed) -> Row:
    """What there is to see of the queue."""
    view = fed.statistics.find(QUEUE, "/", "q")
    return {
        "nodes": [each.node for each in view.objects],
        "publish": view.value("publish"),
        "rate": view.rate("publish"),
        "published": samples(view, "publish"),
        "ready": samples(view, "messages_ready"),
    }


MOVED = {
    "nodes": [B],
    "publish": 125,
    "rate": 1.0,
    "published": [100, 110, 120, 125],
    "ready": [100, 110, 120, 118],
}


def test_the_history_goes_on_when_the_new_master_is_told_first() -> None:
    fed = fed_twice()
    fed.tell(QUEUE, queue(2, number=9, publish=5, messages_ready=118), node=B)
    # The old master's node has not heard yet.
    fed.tell(QUEUE, queue(1, publish=121, messages_ready=121), node=A)
    fed.tick(A, B)
    assert shown(fed) == MOVED
    for kind in (VHOST, NODE):
        view = fed.statistics.find(kind, "/", "/")
        assert samples(view, "messages_ready")[-1] == 118
    fed.tell(QUEUE, gone=(1,), node=A)
    fed.tick(A, B)
    assert shown(fed)["publish"] == 125


def test_the_history_goes_on_when_the_old_master_is_gone_first() -> None:
    fed = fed_twice()
    fed.tell(QUEUE, gone=(1,), node=A)
    fed.tell(QUEUE, queue(2, number=9, publish=5, messages_ready=118), node=B)
    fed.tick(A, B)
    assert shown(fed) == MOVED


def test_the_history_goes_on_when_the_old_master_is_dead() -> None:
    fed = fed_twice()
    fed.tick(B)
    fed.tell(QUEUE, queue(2, number=9, publish=5, messages_ready=118), node=B)
    fed.tick(B)
    expected = MOVED | {"published": [100, 110, 120, 120, 125], "ready": [100, 110, 120, 120, 118]}
    assert shown(fed) == expected
    # The node starts again, as a mirror of the queue.
    fed.started_ms = fed.now_ms
    fed.tell(NODE, told(NODE, 1, A), node=A)
    fed.tick(A)
    assert shown(fed)["publish"] == 125


def test_the_history_comes_back_with_the_master() -> None:
    fed = fed_twice()
    fed.tell(QUEUE, queue(2, number=9, publish=5, messages_ready=118), node=B)
    fed.tell(QUEUE, gone=(1,), node=A)
    fed.tick(A, B)
    fed.tell(QUEUE, queue(3, publish=10, messages_ready=118), node=A)
    fed.tell(QUEUE, gone=(9,), node=B)
    fed.tick(A, B)
    assert shown(fed) == {
        "nodes": [A],
        "publish": 135,
        "rate": 2.0,
        "published": [100, 110, 120, 125, 135],
        "ready": [100, 110, 120, 118, 118],
    }


def test_a_new_node_shows_the_history_of_its_own_ticks() -> None:
    fed = fed_twice(silent=2)
    fed.tell(QUEUE, queue(2, number=9, publish=5, messages_ready=118), node=B)
    fed.tick(A, B)
    assert shown(fed) == MOVED | {"published": [120, 125], "ready": [120, 118]}


def test_another_life_of_the_name_has_no_history() -> None:
    fed = fed_twice()
    fed.tell(QUEUE, gone=(1,), node=A)
    fed.tell(QUEUE, queue(1, number=9, birth=8, publish=5), node=B)
    fed.tick(A, B)
    assert shown(fed)["publish"] == 5 and shown(fed)["published"][-1] == 5


def test_a_queue_that_moves_while_nobody_looks_goes_on(tmp_path: Path) -> None:
    """A file tells which node had the queue."""
    fed = fed_twice()
    HistoryFile(tmp_path / "history", fed.statistics).close()
    after = Fed()
    after.now_ms = fed.now_ms
    file = HistoryFile(tmp_path / "history", after.statistics)
    after.tell(NODE, told(NODE, 1, A), node=A)
    after.tell(NODE, told(NODE, 1, B), node=B)
    after.tell(QUEUE, queue(2, number=9, publish=5, messages_ready=118), node=B)
    after.tick(A, B)
    assert shown(after) == MOVED
    file.close()


def test_what_a_silent_node_had_does_not_count() -> None:
    """The queue is not mirrored: its messages are out of reach."""
    fed = fed_twice()
    for _ in range(3):
        fed.tick(B)
    assert samples(fed.statistics.find(NODE), "messages_ready") == [100, 110, 120, 120, 0, 0]
    assert fed.statistics.find(QUEUE, "/", "q").value("publish") == 120
