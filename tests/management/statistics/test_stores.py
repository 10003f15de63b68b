"""What stores have done by interval: gaps stay gaps, and a restart of a node makes no spike."""

from tests.management.statistics.fed import NODE_NAME, START_MS, Fed, told
from warrenmq.admin.protocol.changes import COUNTERS, NODE, QUEUE, SYNCS, WRITES, ChangedObject
from warrenmq.management.rows import Row
from warrenmq.management.statistics.history import Range
from warrenmq.management.statistics.retention import TICK_MS
from warrenmq.management.statistics.stores import forms_of, intervals_of

FAST, SLOW = SYNCS[3], SYNCS[-1]


def intervals(fed: Fed, age_s: int = 600, step_s: int = 5) -> list[Row]:
    return intervals_of(fed.statistics.find(NODE, node=NODE_NAME), Range(age_s, step_s))


def tell(fed: Fed, **figures: int) -> None:
    fed.tell(NODE, told(NODE, 1, NODE_NAME, **figures))


def test_counts_are_those_of_each_interval() -> None:
    fed = Fed()
    for tick in range(4):
        memory = {"mem_used": 100 + tick, "mem_messages": 7, "mem_paging": 50, "mem_limit": 90}
        tell(fed, **{FAST: 10 * tick}, synced_bytes=tick * tick, content_bytes=3 * tick, **memory)
        fed.tick()
    newest, middle, oldest = intervals(fed)
    assert newest["timestamp"] == START_MS + 4 * TICK_MS and newest["length_ms"] == TICK_MS
    assert [sum(each["syncs"]) for each in (newest, middle, oldest)] == [10, 10, 10]
    assert newest["syncs"][3] == 10 and len(newest["syncs"]) == len(SYNCS)
    assert [each["synced_bytes"] for each in (newest, middle, oldest)] == [5, 3, 1]
    assert newest["writes"] == dict.fromkeys(WRITES, 0) | {"content_bytes": 3}
    assert middle["memory"] == memory | {"mem_used": 102}


def test_nothing_is_known_of_a_gap_nor_of_the_interval_behind_it() -> None:
    fed = Fed()
    for tick in range(6):
        tell(fed, **{SLOW: 10 * tick})
        fed.tick(passed_ms=10 * TICK_MS if tick == 2 else TICK_MS)
    found = intervals(fed)
    ticks = [(each["timestamp"] - START_MS) // TICK_MS for each in found]
    assert ticks == [15, 14, 3, 2]
    assert [each["syncs"][-1] for each in found] == [10, 10, 10, 10]


def test_a_node_that_begins_anew_makes_no_spike() -> None:
    fed = Fed()
    for count in (1000, 1010, 4, 8):
        if count == 4:
            fed.started_ms += 1
        tell(fed, **{FAST: count}, published_bytes=count)
        fed.tick()
    found = intervals(fed)
    assert [each["syncs"][3] for each in found] == [4, 4, 10]
    assert [each["writes"]["published_bytes"] for each in found] == [4, 4, 10]


def test_coarse_intervals_sum_up_fine_ones() -> None:
    fed = Fed()
    for tick in range(37):
        tell(fed, **{FAST: tick})
        fed.tick()
    assert [each["syncs"][3] for each in intervals(fed, 3600, 60)] == [12, 12]


def test_messages_by_form_and_their_target() -> None:
    fed = Fed()
    known = (
        {"messages_ready": 10},
        {"messages_ready": 10, "messages_beta": 2, "messages_gamma": 1, "ram_limit": 8},
        {"messages_ready": 12, "messages_delta": 12, "ram_limit": 1},
    )
    for each in known:
        fed.tell(QUEUE, told(QUEUE, 1, "q", **each))
        fed.tick()
    found = forms_of(fed.statistics.find(QUEUE, "/", "q"), Range(60, 5))
    names = ("alpha", "beta", "gamma", "delta", "target_ram_count")
    assert [[each[name] for name in names] for each in found] == [
        [0, 0, 0, 12, 0],
        [7, 2, 1, 0, 7],
        [10, 0, 0, 0, None],
    ]


def test_a_queue_that_does_not_page_has_samples_of_its_length_alone() -> None:
    fed = Fed()
    for tick in range(3):
        queue = told(QUEUE, 1, "q", messages_ready=tick, memory=tick, message_bytes=tick)
        fed.tell(QUEUE, queue)
        fed.tick()
    queue_figures = fed.statistics.nodes[NODE_NAME].find(QUEUE, "/", "q")
    assert queue_figures is not None
    taken = [place for place in range(len(queue_figures.seen)) if queue_figures.slot(place) >= 0]
    assert taken == [len(COUNTERS[QUEUE])]


def test_a_node_of_an_earlier_version_tells_fewer_counters() -> None:
    fed = Fed()
    known = len(COUNTERS[NODE]) - len(SYNCS) - 1 - len(WRITES)
    fed.tell(NODE, ChangedObject(1, "", NODE_NAME, [5] * known, [77, 88]))
    fed.tick()
    node = fed.statistics.find(NODE)
    figures = [node.value(each) for each in ("disk_writes", FAST, "mem_used", "disk_free")]
    assert figures == [5, 0, 77, 88]
