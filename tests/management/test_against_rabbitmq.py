"""The same requests to the HTTP APIs of RabbitMQ and of warren: statuses, bodies and `Location`.

`requests.json` has a request in each line: user, method, path below `/api/`, and body, of which a
string is sent as it is. They build on each other. Replies that differ are those that the page of
differences names.
"""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.support.brokers.http_api import HttpNode
from tests.support.rabbitmq.http_api import RabbitmqApi

REQUESTS = json.loads(Path(__file__).with_name("requests.json").read_text())
# A user's password is its name, but for one whose password is changed.
PASSWORDS = {"ann": "ann2"}


def replies(address: str) -> list[Any]:
    """The request and the reply of each request."""
    seen: list[Any] = []
    # RabbitMQ closes a connection after a refusal whose body it has not read.
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=address, timeout=60, limits=limits) as client:
        for user, method, path, body in REQUESTS:
            content = body if body is None or isinstance(body, str) else json.dumps(body)
            form = "application/x-www-form-urlencoded" if path == "login" else "application/json"
            reply = client.request(
                method,
                path,
                content=content,
                auth=(user, PASSWORDS.get(user, user)),
                headers={"content-type": form},
            )
            # RabbitMQ writes an empty object there as a list.
            text = reply.text.replace('"properties":[]', '"properties":{}')
            shown = json.loads(text) if text else None
            location = reply.headers.get("location")
            seen.append(((user, method, path, body), reply.status_code, shown, location))
    return seen


def test_the_replies_are_those_of_rabbitmq(http_node: HttpNode, rabbitmq_api: RabbitmqApi) -> None:
    expected = replies(rabbitmq_api.address)
    for ours, theirs in zip(replies(http_node.url + "api/"), expected, strict=True):
        assert ours == theirs
