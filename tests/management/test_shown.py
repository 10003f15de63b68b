"""Figures in the replies of the API: the fields of RabbitMQ, with what a feed has told."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from pika import BlockingConnection, URLParameters

from tests.management.statistics.fed import NODE_NAME, Fed, told
from tests.support.brokers.http_api import HttpNode
from warrenmq.admin.protocol.changes import CHANNEL, CONNECTION, EXCHANGE, NODE, QUEUE
from warrenmq.management.app import make_app
from warrenmq.management.process import place_of_directory
from warrenmq.management.sessions import Sessions
from warrenmq.server.config.options.http_listeners import ManagementOptions

RANGES = "&".join(
    f"{name}_age=60&{name}_incr=5" for name in ("msg_rates", "lengths", "data_rates", "node_stats")
)
PUBLISHED = ("publish", "confirm", "return_unroutable", "drop_unroutable")
DELIVERED = (
    "deliver", "deliver_no_ack", "deliver_get", "get", "get_no_ack", "get_empty", "redeliver", "ack",
)  # fmt: skip


def with_details(*names: str) -> set[str]:
    """The names of counters, and of their details."""
    return {*names, *(f"{name}_details" for name in names)}


class FedApi:
    """The API of a real node, with a feed that the test invents."""

    def __init__(self, client: httpx.Client, fed: Fed) -> None:
        self.client = client
        self.fed = fed

    def get(self, path: str) -> Any:
        return self.client.get(path).json()

    def feed(self) -> None:
        """Two ticks, in which a queue takes 50 messages and hands out 40."""
        (connection,) = self.get("connections?columns=name")
        name = connection["name"]
        for count in (0, 1):
            done = {"publish": 50 * count, "deliver": 40 * count, "ack": 40 * count}
            self.fed.tell(NODE, told(NODE, 1, NODE_NAME, connection_created=count, **done))
            self.fed.tell(EXCHANGE, told(EXCHANGE, 1, "", publish_in=50 * count))
            self.fed.tell(
                QUEUE,
                told(QUEUE, 1, "busy", messages_ready=10 * count, **done),
                told(QUEUE, 2, "idle"),
            )
            self.fed.tell(CONNECTION, told(CONNECTION, 1, name, recv_oct=500 * count))
            self.fed.tell(CHANNEL, told(CHANNEL, 1, f"{name} (1)", publish=50 * count))
            self.fed.tick()


@contextmanager
def served(http_node: HttpNode, fed: Fed, options: ManagementOptions) -> Iterator[FedApi]:
    """The API of the node with the statistics of `fed`."""
    place = place_of_directory(http_node.node.directory / "data")
    app = make_app(Sessions(place), fed.statistics, options, None)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=[[listening]])
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/"
        with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=30) as client:
            yield FedApi(client, fed)
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> Iterator[FedApi]:
    with (
        BlockingConnection(URLParameters(http_node.node.uri)) as connection,
        served(http_node, Fed(), ManagementOptions()) as api,
    ):
        channel = connection.channel()
        channel.queue_declare("busy")
        channel.queue_declare("idle")
        api.feed()
        yield api


def test_queues_have_rates_and_samples(api: FedApi) -> None:
    busy, idle = api.get(f"queues?{RANGES}")
    stats = busy["message_stats"]
    assert set(stats) == {"disk_reads", "disk_writes"} | with_details("publish", *DELIVERED)
    assert (stats["publish"], stats["deliver_get"]) == (50, 40)
    assert {name: type(value) for name, value in stats["publish_details"].items()} == {
        "rate": float,
        "samples": list,
        "avg": float,
        "avg_rate": float,
    }
    assert stats["publish_details"]["rate"] == 10.0
    assert [each["sample"] for each in stats["publish_details"]["samples"]] == [50, 0]
    assert busy["messages_details"]["rate"] == busy["messages_ready_details"]["rate"] == 2.0
    assert [each["sample"] for each in busy["messages_details"]["samples"]] == [10, 0]
    assert set(idle["message_stats"]) == {"disk_reads", "disk_writes"}
    assert (busy.get("idle_since"), idle["idle_since"]) == (None, "2023-11-13T00:00:00.000+00:00")
    one = api.get("queues/%2F/busy")
    assert one["message_stats"]["publish_details"] == {"rate": 10.0}
    assert one["messages_unacknowledged_details"] == {"rate": 0.0}
    assert one["incoming"] == one["deliveries"] == []


def test_lists_are_sorted_by_rates(api: FedApi) -> None:
    for reverse, names in (("true", ["busy", "idle"]), ("false", ["idle", "busy"])):
        order = f"sort=message_stats.publish_details.rate&sort_reverse={reverse}&columns=name"
        assert [row["name"] for row in api.get(f"queues?{order}")] == names
        page = api.get(f"queues?{order}&page=1&page_size=1")
        assert page["items"] == [{"name": names[0]}]


@pytest.mark.parametrize("column", [
    "name", "durable", "exclusive", "node", "messages", "consumers", "consumer_utilisation",
    "policy", "idle_since", "arguments.x", "backing_queue_status.len", "message_stats.publish",
    "message_stats.deliver_get_details.rate", "messages_details.rate", "messages_ready_details.rate",
    "message_stats.nothing", "message_stats", "nothing", "message_stats.disk_writes",
    "owner_pid_details.name", "garbage_collection.minor_gcs", "backing_queue_status", "pid",
])  # fmt: skip
def test_a_list_is_sorted_by_any_column(api: FedApi, column: str) -> None:
    def value(row: Any) -> tuple[float, str]:
        for name in column.split("."):
            row = row.get(name) if isinstance(row, dict) else None
        return (row, "") if isinstance(row, int | float) else (-1, str(row or ""))

    rows = api.get("queues")
    expected = [row["name"] for row in sorted(rows, key=value)]
    assert [row["name"] for row in api.get(f"queues?sort={column}")] == expected
    page = api.get(f"queues?sort={column}&page=1&page_size=1")
    assert [row["name"] for row in page["items"]] == expected[:1]


def test_clients_and_exchanges_have_rates(api: FedApi) -> None:
    (connection,) = api.get("connections")
    assert connection["recv_oct_details"] == {"rate": 100.0}
    assert connection["send_oct_details"] == {"rate": 0.0}
    (channel,) = api.get("channels")
    assert set(channel["message_stats"]) == with_details(*PUBLISHED)
    one = api.get(f"channels/{channel['name']}")
    assert one["publishes"] == one["deliveries"] == []
    assert "idle_since" not in channel
    default, *others = api.get("exchanges")
    assert set(default["message_stats"]) == with_details("publish_in")
    assert all(row["message_stats"] == {} for row in others)


def test_sums_have_rates(api: FedApi) -> None:
    overview = api.get(f"overview?{RANGES}")
    stats = overview["message_stats"]
    disk = ("disk_reads", "disk_writes")
    assert set(stats) == with_details(*PUBLISHED, *DELIVERED, *disk)
    assert stats["publish_details"]["rate"] == 10.0
    assert overview["churn_rates"]["connection_created"] == 1
    assert len(overview["churn_rates"]) == 14
    assert overview["queue_totals"]["messages_details"]["rate"] == 2.0
    assert overview["rates_mode"] == "basic"
    (vhost,) = api.get("vhosts")
    assert set(vhost["message_stats"]) == with_details(*PUBLISHED)
    assert (vhost["recv_oct"], vhost["recv_oct_details"]) == (500, {"rate": 100.0})
    assert vhost["messages_details"] == {"rate": 2.0}
    (node,) = api.get(f"nodes?{RANGES}")
    assert {"mem_used_details", "fd_used_details", "queue_created_details"} <= set(node)


def test_a_user_who_is_no_monitor_sees_the_sums_of_its_vhosts(
    http_node: HttpNode, api: FedApi
) -> None:
    http_node.add_user("inside", "management")
    http_node.add_user("outside", "management", vhosts=("elsewhere",))
    for user, published in (("inside", 50), ("outside", None)):
        reply = api.client.get("overview", auth=(user, user))
        assert reply.json()["message_stats"].get("publish") == published


@pytest.mark.parametrize("age, step", [(0, 5), (-5, 5), (60, 0), (5000, 5), (2505, 5)])
def test_a_range_that_cannot_be_is_refused(api: FedApi, age: int, step: int) -> None:
    reason = f"Invalid range parameters: age {age}, incr {step}"
    for path, error in (("overview", "bad_request"), ("queues", "invalid_range_parameters")):
        for name in ("msg_rates", "lengths"):
            reply = api.client.get(f"{path}?{name}_age={age}&{name}_incr={step}")
            assert (reply.status_code, reply.json()) == (400, {"error": error, "reason": reason})


@pytest.mark.parametrize("query", ["msg_rates_age=60", "msg_rates_age=x&msg_rates_incr=5", ""])
def test_half_a_range_is_none(api: FedApi, query: str) -> None:
    assert set(api.get(f"overview?{query}")["message_stats"]["publish_details"]) == {"rate"}


def test_statistics_can_be_left_out(api: FedApi) -> None:
    off = "disable_stats=true"
    bare = {
        "arguments", "auto_delete", "durable", "exclusive", "name", "node", "state", "type", "vhost",
    }  # fmt: skip
    assert set(api.get(f"queues?{off}")[0]) == bare
    totals = {"messages", "messages_ready", "messages_unacknowledged"}
    assert set(api.get(f"queues?{off}&enable_queue_totals=true")[0]) == bare | totals
    assert set(api.get(f"connections?{off}")[0]) == {"name", "vhost", "user", "node"}
    assert set(api.get(f"nodes?{off}")[0]) == {"name", "type", "running"}
    assert "message_stats" not in api.get(f"exchanges?{off}")[0]
    assert totals.isdisjoint(api.get(f"vhosts?{off}")[0])
    overview = api.get(f"overview?{off}")
    assert set(overview["object_totals"]) == {"queues", "exchanges", "connections"}
    assert overview["disable_stats"] and "message_stats" not in overview
    reply = api.client.get(f"channels?{off}")
    assert reply.json()["reason"] == "Stats in management UI are disabled on this node"


def test_statistics_can_be_off_for_all_requests(http_node: HttpNode, api: FedApi) -> None:
    options = ManagementOptions(rates_mode="none")
    with served(http_node, api.fed, options) as other:
        overview = other.get("overview")
        assert (overview["rates_mode"], overview["message_stats"]) == ("none", {})
        assert overview["queue_totals"]["messages_details"] == {"rate": 2.0}
    options = ManagementOptions(disable_stats=True, enable_queue_totals=True)
    with served(http_node, api.fed, options) as other:
        assert other.get("overview")["disable_stats"]
        assert "messages" in other.get("queues")[0]


def test_a_reset_forgets_rates_and_samples(http_node: HttpNode, api: FedApi) -> None:
    http_node.add_user("monitor", "monitoring")
    refused = api.client.delete("reset", auth=("monitor", "monitor"))
    assert refused.json()["reason"] == "Not administrator user"
    assert api.client.delete("reset/nobody").status_code == 404
    (node,) = api.get("nodes?columns=name")
    assert api.client.delete(f"reset/{node['name']}").status_code == 204
    assert api.get("queues/%2F/busy")["message_stats"]["publish_details"] == {"rate": 10.0}
    assert api.client.delete("reset").status_code == 204
    stats = api.get(f"queues/%2F/busy?{RANGES}")["message_stats"]
    assert (stats["publish"], stats["publish_details"]["samples"]) == (50, [])


def test_queues_are_sorted_by_the_time_since_which_they_are_idle(api: FedApi) -> None:
    api.fed.tell(QUEUE, told(QUEUE, 2, "idle", publish=1))
    api.fed.tick()
    active, idle = api.get("queues?sort=idle_since&columns=name,idle_since")
    assert active == {"name": "idle"}
    assert (idle["name"], idle["idle_since"]) == ("busy", "2023-11-13T00:00:05.000+00:00")
