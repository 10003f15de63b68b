"""A node on which everything that clients and users name, write and set is a script."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import pika

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened

SCRIPT = "'\"><script>alert(1)</script><img src=x onerror=alert(1)>"
# What is not the name of anything: it must not be seen by who may not enter the vhost.
HIDDEN = f"hush{SCRIPT}"
ESCAPED = quote(SCRIPT, safe="")
PASSWORD = "p"
# The name of the reader group, the sink and the schedule: a script is no valid name for them.
READER = "hush"
_ALL = {"configure": ".*", "write": ".*", "read": ".*"}
_PROPERTIES = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type",
    "app_id", "cluster_id",
)  # fmt: skip


@dataclass
class Seeded:
    """The node, the API as the user SCRIPT, and the name of the connection of that user."""

    node: HttpNode
    api: httpx.Client
    connection: str

    def pages(self, user: str = SCRIPT, password: str = PASSWORD) -> httpx.Client:
        """A signed-in browser, which the caller closes."""
        client = httpx.Client(base_url=self.node.url, timeout=60)
        reply = httpx.post(f"{self.node.url}login", data={"user": user, "password": password})
        assert reply.status_code == 303, reply.text
        client.cookies = reply.cookies
        return client


@contextmanager
def seeded(node: HttpNode) -> Iterator[Seeded]:
    """A vhost, queue, exchange, policy and user called SCRIPT, a reader group and a sink.

    The user SCRIPT is an administrator with all rights in the vhost.
    """
    api = _declare(node)
    uri = f"amqp://{ESCAPED}:{PASSWORD}@{node.node.host}:{node.node.port}/{ESCAPED}"
    parameters = pika.URLParameters(uri)
    parameters.client_properties = dict.fromkeys(
        ("product", "version", "platform", "connection_name"), HIDDEN
    )
    connection = pika.BlockingConnection(parameters)
    with AdminClient(NodeAddress(uri)) as admin:
        channel = connection.channel()
        _publish(channel)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(
            SCRIPT, lambda *_: None, consumer_tag=HIDDEN, arguments={HIDDEN: HIDDEN}
        )
        admin.request(OpenGroup(READER, [SCRIPT.encode()]), GroupOpened)
        admin.request(OpenStage(READER, 1), StageOpened)
        _run_a_job(node, api)
        with _served(connection):
            eventually(lambda: len(api.get("consumers").json()) == 1, "the consumer is listed")
            yield Seeded(node, api, str(api.get("connections").json()[0]["name"]))
    if connection.is_open:
        connection.close()


def _declare(node: HttpNode) -> httpx.Client:
    guest = node.client()
    guest.put(f"vhosts/{ESCAPED}", json={"description": HIDDEN, "tags": HIDDEN})
    tags = ["administrator", HIDDEN]
    guest.put(f"users/{ESCAPED}", json={"password": PASSWORD, "tags": tags})
    guest.put(f"permissions/{ESCAPED}/{ESCAPED}", json=_ALL)
    topic = {"exchange": SCRIPT, "write": HIDDEN, "read": ".*"}
    guest.put(f"topic-permissions/{ESCAPED}/{ESCAPED}", json=topic)
    guest.put("cluster-name", json={"name": "<script>cluster</script>"})
    api = node.client(SCRIPT, PASSWORD)
    place = f"{ESCAPED}/{ESCAPED}"
    policy = {"pattern": f"hush|{SCRIPT}", "definition": {"dead-letter-routing-key": HIDDEN}}
    api.put(f"policies/{place}", json=policy)
    limit = {"pattern": ".*", "definition": {"max-length": 1000}, "apply-to": "queues"}
    api.put(f"operator-policies/{place}", json=limit)
    exchange = {"type": "topic", "durable": True, "arguments": {"alternate-exchange": HIDDEN}}
    api.put(f"exchanges/{place}", json=exchange)
    queue = {"durable": True, "arguments": {"x-dead-letter-exchange": HIDDEN, HIDDEN: HIDDEN}}
    api.put(f"queues/{place}", json=queue)
    binding = {"routing_key": HIDDEN, "arguments": {HIDDEN: HIDDEN}}
    reply = api.post(f"bindings/{ESCAPED}/e/{ESCAPED}/q/{ESCAPED}", json=binding)
    assert reply.status_code == 201, reply.text
    return api


def _run_a_job(node: HttpNode, api: httpx.Client) -> None:
    """A schedule, which does not run by itself, and a run of its job, which fails."""
    (node.jobs_directory / READER).mkdir(parents=True, exist_ok=True)
    job = {"job": "verify", "arguments": {"directory": READER}}
    schedule = {**job, "interval": 3600, "enabled": False}
    assert api.put(f"warren/schedules/{ESCAPED}/{READER}", json=schedule).is_success
    name = api.post("warren/jobs", json={**job, "vhost": SCRIPT}).json()["name"]
    eventually(lambda: api.get(f"warren/jobs/{name}").json()["state"] != "running", "the run ends")


def _publish(channel: "pika.adapters.blocking_connection.BlockingChannel") -> None:
    """Two messages: a consumer holds the one, and the other is ready."""
    properties = pika.BasicProperties(
        headers={HIDDEN: HIDDEN, "deep": {HIDDEN: [HIDDEN]}},
        user_id=SCRIPT,
        **dict.fromkeys(_PROPERTIES, HIDDEN),
    )
    for _ in range(2):
        channel.basic_publish("", SCRIPT, json.dumps({HIDDEN: HIDDEN}).encode(), properties)


@contextmanager
def _served(connection: pika.BlockingConnection) -> Iterator[None]:
    """The connection answers heartbeats and deliveries, in a thread, until the end."""
    ends = threading.Event()

    def serve() -> None:
        # A test may close it.
        with suppress(pika.exceptions.ConnectionClosedByBroker):
            while not ends.is_set():
                connection.process_data_events(0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
