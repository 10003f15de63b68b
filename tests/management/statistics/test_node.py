"""The objects of a node: sessions and starts of the node, names, and the sums over vhosts."""

import msgspec

from tests.management.statistics.fed import NODE_NAME, START_MS, Fed, told
from warrenmq.admin.protocol.changes import CHANNEL, CONNECTION, EXCHANGE, NODE, QUEUE
from warrenmq.management.statistics.figures import VHOST
from warrenmq.management.statistics.history import Range


def fed_once() -> Fed:
    """A node with a queue, after its first tick."""
    fed = Fed()
    fed.tell(NODE, told(NODE, 1, NODE_NAME, publish=100, connections=1))
    fed.tell(EXCHANGE, told(EXCHANGE, 1, "", publish_in=100))
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=100, messages_ready=90, messages_unacknowledged=9))
    fed.tell(CONNECTION, told(CONNECTION, 1, "c", recv_oct=1000))
    fed.tell(CHANNEL, told(CHANNEL, 1, "c (1)", publish=100))
    fed.tick()
    return fed


def test_counters_go_on_when_the_node_starts_again() -> None:
    fed = fed_once()
    fed.started_ms = fed.now_ms
    fed.tell(NODE, told(NODE, 1, NODE_NAME, publish=20))
    fed.tell(EXCHANGE, told(EXCHANGE, 7, "", publish_in=20))
    fed.tell(QUEUE, told(QUEUE, 7, "q", publish=20, messages_ready=110))
    fed.tick()
    statistics = fed.statistics
    queue = statistics.find(QUEUE, "/", "q")
    assert (queue.value("publish"), queue.rate("publish")) == (120, 4.0)
    assert queue.value("messages_ready", "messages_unacknowledged") == 110
    assert statistics.find(NODE).value("publish") == 120
    assert statistics.find(EXCHANGE, "/").value("publish_in") == 120
    # Clients have gone with the node.
    assert statistics.find(CHANNEL, "/", "c (1)").objects == []
    assert statistics.find(VHOST, "/").value("publish") == 100
    assert statistics.find(VHOST, "/").value("messages_ready") == 110
    assert statistics.find(NODE).value("messages_ready") == 110
    fed.tell(QUEUE, told(QUEUE, 7, "q", publish=30, messages_ready=110))
    fed.tick()
    assert queue.value("publish") == 130


def test_a_queue_of_the_same_name_begins_anew() -> None:
    fed = fed_once()
    fed.tell(QUEUE, told(QUEUE, 2, "q", publish=1, messages_ready=1), gone=(1,))
    fed.tick()
    queue = fed.statistics.find(QUEUE, "/", "q")
    assert (queue.value("publish"), queue.value("messages_ready")) == (1, 1)
    assert fed.statistics.find(VHOST, "/").value("messages_ready") == 1
    (shown,) = queue.details("publish", asked=Range(60, 5))["samples"][:1]
    assert shown["sample"] == 1


def test_an_object_is_idle_after_a_tick_without_a_change() -> None:
    fed = fed_once()
    first_ms = START_MS

    def idle_since() -> list[int]:
        find = fed.statistics.idle_since_ms
        return [find(QUEUE, "/", "q"), find(CHANNEL, "/", "c (1)"), find(QUEUE, "/", "none")]

    assert idle_since() == [0, 0, 0]
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=101, messages_ready=91, messages_unacknowledged=9))
    changed_ms = fed.now_ms
    fed.tick()
    assert idle_since() == [0, first_ms, 0]
    # A new session is told of everything.
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=101, messages_ready=91, messages_unacknowledged=9))
    fed.tick()
    assert idle_since() == [changed_ms, first_ms, 0]
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=101, messages_ready=91))
    assert idle_since() == [0, first_ms, 0]


def test_a_vhost_sums_up_what_is_in_it_and_goes_with_it() -> None:
    fed = fed_once()
    fed.tell(CHANNEL, told(CHANNEL, 2, "d (1)", publish=7), gone=(1,))
    fed.tell(CONNECTION, told(CONNECTION, 1, "c", recv_oct=1500))
    fed.tell(QUEUE, msgspec.structs.replace(told(QUEUE, 3, "w", messages_ready=4), vhost="w"))
    fed.tick()
    vhost = fed.statistics.find(VHOST, "/")
    assert (vhost.value("publish"), vhost.rate("publish")) == (107, 1.4)
    assert (vhost.value("recv_oct"), vhost.rate("recv_oct")) == (1500, 100.0)
    both = fed.statistics.find_vhosts(["/", "w", "none"])
    assert (both.value("messages_ready"), both.rate("messages_ready")) == (94, 0.8)
    fed.tell(QUEUE, gone=(3,))
    fed.tick()
    assert fed.statistics.find(VHOST, "w").objects == []
    assert fed.statistics.find(NODE).value("messages_ready") == 90


def test_a_reset_forgets_samples_and_keeps_values() -> None:
    fed = fed_once()
    for publish in (110, 120):
        fed.tell(QUEUE, told(QUEUE, 1, "q", publish=publish))
        fed.tick()
    fed.statistics.clear("other@here")
    queue = fed.statistics.find(QUEUE, "/", "q")
    assert len(queue.details("publish", asked=Range(60, 5))["samples"]) == 3
    fed.statistics.clear(NODE_NAME)
    assert queue.details("publish", asked=Range(60, 5))["samples"] == []
    assert (queue.value("publish"), queue.rate("publish")) == (120, 0)
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=125))
    fed.tick()
    queue = fed.statistics.find(QUEUE, "/", "q")
    (shown,) = queue.details("publish", asked=Range(60, 5))["samples"]
    assert (shown["sample"], queue.rate("publish")) == (125, 1.0)
