"""The same requests to the HTTP APIs of RabbitMQ and of warren: statuses, bodies and `Location`.

`requests.json` has a request in each line: user, method, path below `/api/`, and body, of which a
string is sent as it is. They build on each other. Replies that differ are those that the page of
differences names. Of those in `reads.json`, in the same form, status, headers and the shape of the
reply are compared.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.management.shapes import differences
from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from tests.support.rabbitmq.http_api import RabbitmqApi

REQUESTS = json.loads(Path(__file__).with_name("requests.json").read_text())
READS = json.loads(Path(__file__).with_name("reads.json").read_text())
# A user's password is its name, but for one whose password is changed.
PASSWORDS = {"ann": "ann2"}


# Differences of shapes that are meant.
MEANT = re.compile(
    # Figures of Erlang's processes, tables and files, with their rates.
    r"\S*(\.reductions|\.reductions_details|\.garbage_collection|_seq_id|_count|_avg_time|_bytes"
    r"|\.avg_\w+_rate|\.(gc|io|mnesia|msg_store|queue_index|context|proc|run)_\w+_details) is missing"
    r"|\S*\.(gc_\w+|mnesia_\w+|ra_\w+|metrics_gc_queue_length|run_queue|net_ticktime|proc_\w+"
    r"|processors|context_switches|\w+_(created|closed|declared|deleted)) is missing"
    # Texts for RabbitMQ's own pages, and what only its plug-ins have.
    r"|\S*\.(internal_purpose|release_series_support_status|desc|doc_url|description|applications"
    r"|contexts|enabled_plugins|exchange_types|config_files|socket_opts|cowboy_opts|user_who_performed_action) is "
    r"missing"
    # Bytes of connections by vhost; names of single active consumers; mirrors that may be masters.
    r"|\S*\.(recv_oct|send_oct|single_active_consumer_tag|recoverable_slaves) is missing"
    # RabbitMQ leaves out what has no value yet.
    r"|\S*\.message_stats\.\w+ is warren's own|\S*\.(recv|send)_oct(_details)? is warren's own"
    r"|\S*\.(message_stats|policy|effective_policy_definition|metadata|consumers) is warren's own"
    r"|\S*\.(being_drained|warren_version) is warren's own"
    # A queue has it while it is idle, as of the last figures that RabbitMQ has taken of it.
    r"|\S*\.idle_since is warren's own"
    # A number or "infinity"; the names of nodes.
    r"|\S*\.target_ram_count is a number, not a str|\S*\.cluster_state\.\S+ is (missing|warren's own)"
)


class Api:
    """Sends requests to one of the APIs."""

    def __init__(self, address: str) -> None:
        # RabbitMQ closes a connection after a refusal whose body it has not read.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=address, timeout=60, limits=limits)

    def has_figures(self, path: str) -> bool:
        """Whether all queues of a list have figures, which come from time to time."""
        rows = self._client.get(path, auth=("guest", "guest")).json()
        return all("backing_queue_status" in row and "idle_since" in row for row in rows)

    def replies(self, requests: list[Any]) -> Iterator[httpx.Response]:
        """The reply of each request."""
        with self._client:
            for user, method, path, body in requests:
                content = body if body is None or isinstance(body, str) else json.dumps(body)
                form = "x-www-form-urlencoded" if path == "login" else "json"
                yield self._client.request(
                    method,
                    path,
                    content=content,
                    auth=(user, PASSWORDS.get(user, user)) if user else None,
                    headers={"content-type": f"application/{form}"},
                )


def shown(reply: httpx.Response) -> tuple[int, Any, str | None]:
    """Status, body and `Location`."""
    # RabbitMQ writes an empty object there as a list.
    text = reply.text.replace('"properties":[]', '"properties":{}')
    return reply.status_code, json.loads(text) if text else None, reply.headers.get("location")


def test_the_replies_are_those_of_rabbitmq(http_node: HttpNode, rabbitmq_api: RabbitmqApi) -> None:
    ours = Api(http_node.url + "api/").replies(REQUESTS)
    theirs = Api(rabbitmq_api.address).replies(REQUESTS)
    for request, reply, expected in zip(REQUESTS, ours, theirs, strict=True):
        assert (request, shown(reply)) == (request, shown(expected))


def test_reads_have_the_shape_of_rabbitmqs(http_node: HttpNode, rabbitmq_api: RabbitmqApi) -> None:
    addresses = (http_node.url + "api/", rabbitmq_api.address)
    first = READS.index(["guest", "GET", "overview", None])
    different = different_replies(READS[:first], *addresses)
    for api in map(Api, addresses):
        eventually(partial(api.has_figures, "queues/reads"), "the queues have figures")
    different += different_replies(READS[first:], *addresses)
    assert not different, "\n".join(different)


def different_replies(requests: list[Any], ours: str, theirs: str) -> list[str]:
    """Lines that say where replies are not like RabbitMQ's, and not meant to be so."""
    replies = zip(requests, Api(ours).replies(requests), Api(theirs).replies(requests), strict=True)
    return [
        f"{request[:3]}: {line}"
        for request, reply, expected in replies
        for line in unlike(reply, expected)
        if not MEANT.fullmatch(line)
    ]


def unlike(ours: httpx.Response, theirs: httpx.Response) -> Iterator[str]:
    """Lines that say where a reply is not like RabbitMQ's."""
    if ours.status_code != theirs.status_code:
        yield f"status {ours.status_code}, not {theirs.status_code}"
    for name in ("content-type", "www-authenticate"):
        if ours.headers.get(name) != theirs.headers.get(name):
            yield f"{name} {ours.headers.get(name)}, not {theirs.headers.get(name)}"
    if listed(ours, "allow") != listed(theirs, "allow"):
        yield f"allow {listed(ours, 'allow')}"
    # RabbitMQ sends these on some replies only.
    for name in ("vary", "cache-control"):
        if not listed(theirs, name) <= listed(ours, name):
            yield f"{name} {listed(ours, name)}"
    yield from differences(body_of(ours), body_of(theirs))


def body_of(reply: httpx.Response) -> Any:
    """The JSON of a reply, None if it has no body."""
    return json.loads(reply.text) if reply.text else None


def listed(reply: httpx.Response, name: str) -> set[str]:
    """The values in a header."""
    return {each.strip() for each in reply.headers.get(name, "").split(",")} - {""}
