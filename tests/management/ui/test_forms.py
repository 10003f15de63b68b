"""Forms that are refused, on every page: the reason beside the form, and all that was typed."""

from collections.abc import Iterator

import httpx
import pytest

from tests.management.ui.forms import form_for
from tests.support.brokers.http_api import HttpNode

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def pages(http_node: HttpNode) -> Iterator[httpx.Client]:
    http_node.client().put("queues/%2F/q", json={})
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        assert client.post("login", data={"user": "guest", "password": "guest"}).status_code == 200
        yield client


# The page, the path of its form, and what is typed.
REFUSED = [
    (
        "queues?name=x&columns=Name",
        "/new-queue",
        {
            "queue": HOSTILE,
            "durable": "",
            "auto_delete": "true",
            "x-queue-mode": "lazy",
            "x-expires": "0",
            "arguments": "a = 1",
        },
    ),
    ("queues", "/new-queue", {"queue": "n", "arguments": "no value"}),
    ("queues", "/new-queue", {"queue": "n", "x-max-length": "9" * 30}),
    (
        "exchanges",
        "/exchanges",
        {"name": HOSTILE, "type": "topic", "internal": "true", "arguments": HOSTILE},
    ),
    ("users", "/users", {"name": HOSTILE, "login": "set", "tag-monitoring": "true", "again": "b"}),
    ("users/guest?tab=limits", "/users/guest/limits", {"max-connections": "x"}),
    ("vhosts/%2F?tab=limits", "/vhosts/%2F/limits", {"max-queues": "x"}),
    (
        "vhosts/%2F?tab=permissions",
        "/vhosts/%2F/permissions",
        {"user": "nobody", "configure": "(", "write": HOSTILE, "read": ""},
    ),
    (
        "exchanges/%2F/amq.topic?tab=publish",
        "/exchanges/%2F/amq.topic/publish",
        {"payload": f"a\n{HOSTILE}", "headers": "bad", "type": "t", "delivery_mode": "2"},
    ),
    ("queues/%2F/q?tab=publish", "/queues/%2F/q/publish", {"payload": "p", "expiration": "bad"}),
    ("queues/%2F/q?tab=get", "/queues/%2F/q/get", {"count": "0", "ackmode": "ack_requeue_false"}),
    ("queues/%2F/q?tab=move", "/queues/%2F/q/move", {"destination": "other", "count": "2000"}),
    ("queues/%2F/q?tab=bindings", "/queues/%2F/q/bind", {"other": "no", "routing_key": "k"}),
    (
        "exchanges/%2F/amq.topic?tab=bindings",
        "/exchanges/%2F/amq.topic/bind",
        {"kind": "from", "other": "no", "arguments": "a = 1"},
    ),
]


@pytest.mark.parametrize(("url", "action", "typed"), REFUSED)
def test_a_refused_form_keeps_what_was_typed(
    pages: httpx.Client, url: str, action: str, typed: dict[str, str]
) -> None:
    page = pages.get(url)
    form = form_for(page.text, action)
    sent = {**form.values, **{name: [value] for name, value in typed.items()}}
    # A second refusal, of the form that the first one shows, leads to the same page.
    for _ in range(2):
        refused = pages.post(action.lstrip("/"), data=sent)
        assert refused.status_code in (400, 404)
        assert HOSTILE not in refused.text
        again = form_for(refused.text, action)
        assert again.alert
        kept = {name: values for name, values in again.values.items() if name != "again"}
        assert kept == {name: values for name, values in sent.items() if name != "again"}
        assert refused.text.partition("<h1>")[2][:40] == page.text.partition("<h1>")[2][:40]
        sent = {**again.values, **{name: [value] for name, value in typed.items()}}


def test_a_form_without_an_own_page_says_the_reason_alone(pages: httpx.Client) -> None:
    for back in ({}, {"back": "https://evil.example/"}):
        refused = pages.post("new-queue", data={"queue": "n", "arguments": "no value", **back})
        assert refused.status_code == 400
        assert "no name = value" in refused.text and "<form" not in refused.text


def test_a_refused_button_says_the_reason_on_its_page(pages: httpx.Client) -> None:
    sent = {"action": "juggle", "back": "/queues/%2F/q?tab=get"}
    refused = pages.post("queues/%2F/q/do", data=sent)
    assert refused.status_code == 400
    assert "This cannot be done to a queue." in refused.text and "Get messages" in refused.text
