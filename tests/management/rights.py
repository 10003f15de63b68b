"""The statuses of all requests of rights.json, by the tag of the user who sends them.

Each request is sent by one user of each tag, who has all permissions in the vhost `own` and none in
`foreign`: the placeholder `{vhost}` is the one, then the other. `{connection}`, `{channel}` and
`{user}` are the user's own, then another user's. `before` are requests of an administrator that
make anew what the request deletes. `statuses` are RabbitMQ's, in the order of TAGS; `warren` are
warren's where it differs, or has an endpoint of its own, and `why` gives the reason.

`python -m tests.management.rights` records the statuses of an installed RabbitMQ.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pika

from tests.support.awaiting import eventually

FILE: Final = Path(__file__).with_name("rights.json")
TAGS: Final = ("none", "management", "policymaker", "monitoring", "administrator")
_ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
_PAIRS: Final = ("own", "foreign")
_VHOSTED: Final = ("{vhost}", "{connection}", "{channel}", "{user}")
_POLICY: Final = {"pattern": "^none$", "definition": {"max-length": 5}}

Statuses = dict[str, list[int]]


def requests() -> list[dict[str, Any]]:
    """The requests in the file."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text())
    return found


class Broker:
    """A broker under test, at the address of its API and at its AMQP port."""

    def __init__(self, address: str, amqp_port: int) -> None:
        self._amqp_port = amqp_port
        # RabbitMQ closes a connection after a refusal whose body it has not read.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=address, timeout=60, limits=limits)
        self._connections: dict[str, pika.BlockingConnection] = {}
        self._names: dict[str, str] = {}
        self._values: dict[str, str] = {}

    def statuses(self, request: dict[str, Any]) -> Statuses:
        """The statuses of a request, of one user after another."""
        pairs = _PAIRS if any(name in request["path"] for name in _VHOSTED) else _PAIRS[:1]
        return {pair: [self._status(request, tag, pair) for tag in TAGS] for pair in pairs}

    def _status(self, request: dict[str, Any], tag: str, pair: str) -> int:
        if self._connect(tag, pair):
            eventually(lambda: self._is_listed(self._user(tag, pair)), "the connection is listed")
        for method, path, body in request.get("before", []):
            self._must(method, self._filled(path, tag, pair), body)
        path = self._filled(request["path"], tag, pair)
        reply = self._send(f"u-{tag}", request["method"], path, request.get("body"))
        if request.get("closes") and reply.status_code == 204:
            self._forget(tag, pair)
        return reply.status_code

    def _filled(self, path: str, tag: str, pair: str) -> str:
        user = self._user(tag, pair)
        connection = self._names.get(user, "none")
        filled = path.replace("{vhost}", pair).replace("{user}", user)
        filled = filled.replace("{connection}", quote(connection, ""))
        filled = filled.replace("{channel}", quote(f"{connection} (1)", ""))
        for name, value in self._values.items():
            filled = filled.replace(name, value)
        return filled

    def _send(self, user: str, method: str, path: str, body: Any) -> httpx.Response:
        is_form = isinstance(body, str)
        kind = "application/x-www-form-urlencoded" if is_form else "application/json"
        content = body if is_form or body is None else json.dumps(body)
        headers = {"content-type": kind}
        return self._client.request(
            method, path, content=content, auth=(user, user), headers=headers
        )

    def _must(self, method: str, path: str, body: Any) -> None:
        reply = self._send("guest", method, path, body)
        assert reply.status_code < 300, (path, reply.text)

    # -- preparation -------------------------------------------------------------------------------

    @contextmanager
    def prepared(self) -> Iterator["Broker"]:
        """The broker with the users, and with the objects that the requests are about."""
        for user in (*(f"u-{tag}" for tag in TAGS), "u-other"):
            tag = user.removeprefix("u-")
            tags = tag if tag in TAGS[1:] else ""
            self._must("PUT", f"users/{user}", {"password": user, "tags": tags})
        self._must("PUT", "users/u-other", {"password": "u-other", "tags": "management"})
        self._must("PUT", "global-parameters/g", {"value": 1})
        for vhost in _PAIRS:
            self._prepare_vhost(vhost)
        overview = self._send("guest", "GET", "overview", None).json()
        self._values = {"{node}": overview["node"], "{port}": str(self._amqp_port)}
        for tag in TAGS:
            for pair in _PAIRS:
                self._connect(tag, pair)
        eventually(self._has_channels, "all channels are listed")
        yield self
        for connection in self._connections.values():
            connection.close()
        self._client.close()

    def _prepare_vhost(self, vhost: str) -> None:
        self._must("PUT", f"vhosts/{vhost}", {})
        users = (f"u-{tag}" for tag in TAGS) if vhost == "own" else ()
        for user in (*users, "u-other"):
            self._must("PUT", f"permissions/{vhost}/{user}", _ALL)
        topic = {"exchange": "amq.topic", "write": "", "read": ""}
        self._must("PUT", f"topic-permissions/{vhost}/u-other", topic)
        self._must("PUT", f"queues/{vhost}/q", {})
        for exchange in "xy":
            self._must("PUT", f"exchanges/{vhost}/{exchange}", {"type": "topic"})
        self._must("POST", f"bindings/{vhost}/e/x/q/q", {"routing_key": "k"})
        upstream = {"value": {"uri": "amqp://"}}
        self._must("PUT", f"parameters/federation-upstream/{vhost}/f", upstream)
        for kind in ("policies", "operator-policies"):
            self._must("PUT", f"{kind}/{vhost}/p", _POLICY)

    # -- connections -------------------------------------------------------------------------------

    def _user(self, tag: str, pair: str) -> str:
        return f"u-{tag}" if pair == "own" else "u-other"

    def _connect(self, tag: str, pair: str) -> bool:
        """Have a connection with a channel of the user: one's own, or another one's.

        True for a new one, which RabbitMQ lists after a few seconds.
        """
        user = self._user(tag, pair)
        if user in self._connections:
            return False
        uri = f"amqp://{user}:{user}@127.0.0.1:{self._amqp_port}/{pair}?heartbeat=0"
        connection = pika.BlockingConnection(pika.URLParameters(uri))
        connection.channel()
        self._connections[user] = connection
        host, port = connection._impl._transport._sock.getsockname()
        self._names[user] = f"{host}:{port} -> {host}:{self._amqp_port}"
        return True

    def _is_listed(self, user: str) -> bool:
        path = f"connections/{quote(self._names[user], '')}"
        return self._send("guest", "GET", path, None).status_code == 200

    def _has_channels(self) -> bool:
        """Whether the channels of all connections are listed, which RabbitMQ takes seconds for."""
        paths = [f"channels/{quote(f'{name} (1)', '')}" for name in self._names.values()]
        replies = [self._send("guest", "GET", path, None) for path in paths]
        return all(reply.status_code == 200 for reply in replies)

    def _forget(self, tag: str, pair: str) -> None:
        """The user's connection was closed by the request."""
        connection = self._connections.pop(self._user(tag, pair))
        try:
            connection.sleep(10)
        except pika.exceptions.AMQPError:
            return
        raise AssertionError("the connection is open")


def record() -> None:
    """Write the statuses of RabbitMQ into the file."""
    from tests.support.rabbitmq.http_api import PLUGINS, SETTINGS, rabbitmq_api

    with (
        tempfile.TemporaryDirectory() as directory,
        rabbitmq_api(Path(directory), PLUGINS, SETTINGS) as rabbitmq,
        Broker(rabbitmq.address, rabbitmq.amqp_port).prepared() as broker,
    ):
        rows = [
            row if is_own(row) else {**row, "statuses": broker.statuses(row)} for row in requests()
        ]
    FILE.write_text("[\n" + ",\n".join([f"  {json.dumps(row)}" for row in rows]) + "\n]\n")


def is_own(request: dict[str, Any]) -> bool:
    """Whether only warren has the endpoint."""
    return "warren" in request and "why" not in request


if __name__ == "__main__":
    record()
