"""The pages of users and vhosts: what they change, and what a user may do by the permissions."""

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode

HOSTILE = "<script>alert(1)</script>"
ESCAPED = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> httpx.Client:
    return http_node.client()


@pytest.fixture(scope="module")
def pages(http_node: HttpNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        assert client.post("login", data={"user": "guest", "password": "guest"}).status_code == 200
        yield client


def shown(reply: httpx.Response, status: int = 200) -> str:
    """The text of a page, without its tags."""
    assert reply.status_code == status, reply.text
    assert HOSTILE not in reply.text
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def test_a_user_is_added_changed_limited_and_deleted(
    pages: httpx.Client, api: httpx.Client
) -> None:
    path = f"users/{ESCAPED}"
    new = {"name": HOSTILE, "login": "set", "password": "p", "again": "q", "tag-monitoring": "true"}
    assert "not alike" in shown(pages.post("users", data=new), 400)
    assert f"User {HOSTILE} added" in shown(pages.post("users", data=new | {"again": "p"}))
    made = api.get(path).json()
    assert made["tags"] == ["monitoring"] and made["password_hash"]
    assert "No access" in shown(pages.get("users?name=script"))
    change = {"login": "none", "tag-policymaker": "true", "tags": "mine, yours"}
    assert "changed." in shown(pages.post(path, data=change))
    changed = api.get(path).json()
    assert (changed["tags"], changed["password_hash"]) == (["policymaker", "mine", "yours"], "")
    limits = {"max-connections": "5", "max-channels": ""}
    assert "Limits of" in shown(pages.post(f"{path}/limits", data=limits))
    assert api.get(f"user-limits/{ESCAPED}").json()[0]["value"] == {"max-connections": 5}
    assert "no whole number" in shown(pages.post(f"{path}/limits", data={"max-channels": "x"}), 400)
    assert "Not deleted" in shown(pages.post(f"{path}/delete", data={"confirmed": "x"}))
    assert "deleted." in shown(pages.post(f"{path}/delete", data={"confirmed": HOSTILE}))
    assert api.get(path).status_code == 404


@pytest.mark.parametrize("place", ["users/writer", "vhosts/%2F"])
def test_permissions_are_set_and_cleared(
    pages: httpx.Client, api: httpx.Client, place: str
) -> None:
    api.put("users/writer", json={"tags": "", "password": "writer"})
    fields = {"user": "writer", "in_vhost": "/", "write": "^w<", "read": ""}
    assert "set." in shown(pages.post(f"{place}/permissions", data=fields | {"configure": ""}))
    row = api.get("permissions/%2F/writer").json()
    assert (row["configure"], row["write"], row["read"]) == ("", "^w<", "")
    assert "^w<" in shown(pages.get(f"{place}?tab=permissions"))
    topic = fields | {"exchange": "amq.topic"}
    assert "set." in shown(pages.post(f"{place}/topic-permissions", data=topic))
    assert "amq.topic" in shown(pages.get(f"{place}?tab=topic-permissions"))
    chosen = {"chosen": "%2F/writer/amq.topic"}
    cleared = shown(pages.post(f"{place}/topic-permissions/clear", data=chosen))
    assert "1 cleared." in cleared and "amq.topic" not in cleared
    chosen = {"chosen": "%2F/writer"}
    assert "1 cleared." in shown(pages.post(f"{place}/permissions/clear", data=chosen))
    assert api.get("permissions/%2F/writer").status_code == 404


def test_the_question_what_a_user_may_do(
    http_node: HttpNode, pages: httpx.Client, api: httpx.Client
) -> None:
    http_node.add_user("asked")
    rights = {"configure": "", "write": "^orders|amq.topic", "read": "^amq\\."}
    api.put("permissions/%2F/asked", json=rights)
    topic = {"exchange": "amq.topic", "write": "^{username}$", "read": "^a"}
    api.put("topic-permissions/%2F/asked", json=topic)

    def ask(operation: str, name: str, other: str = "", key: str = "", user: str = "asked") -> str:
        query = {"user": user, "in_vhost": "/", "operation": operation, "name": name}
        reply = pages.get("rights", params=query | {"other": other, "key": key})
        return shown(reply).split("What may a user do?")[2].split("May the user")[0]

    assert "Yes: asked may basic.publish on 'orders.x' in /." in ask("basic.publish", "orders.x")
    assert "There is no exchange orders.x" in ask("basic.publish", "orders.x")
    assert "No:" in ask("basic.publish", "")
    assert "exchange 'amq.default' write ^orders|amq.topic no" in ask("basic.publish", "")
    assert "Yes:" in ask("basic.publish", "amq.topic", key="asked")
    assert "No:" in ask("basic.publish", "amq.topic", key="other")
    assert "queue 'orders' configure empty no" in ask("queue.declare", "orders")
    assert "Yes:" in ask("queue.bind", "orders", "amq.topic", "a.b")
    refused = ask("queue.bind", "orders", "amq.topic", "b")
    assert (
        "No:" in refused and "routing key 'b' at topic exchange 'amq.topic' read ^a no" in refused
    )
    assert "amq.direct is of type direct" in ask("queue.bind", "orders", "amq.direct", "b")
    assert "read" in ask("queue.declare", "q", "amq.fanout")
    assert "read" not in ask("queue.declare", "q")
    assert "There is no user nobody." in ask("basic.get", "q", user="nobody")
    api.delete("permissions/%2F/asked")
    assert "has no permissions in /" in ask("basic.get", "q")


def test_a_vhost_is_added_changed_limited_and_deleted(
    pages: httpx.Client, api: httpx.Client
) -> None:
    path = f"vhosts/{ESCAPED}"
    added = pages.post("vhosts", data={"name": HOSTILE, "description": "d", "tags": "a, b"})
    assert f"Vhost {HOSTILE} added." in shown(added)
    api.put(f"queues/{ESCAPED}/q", json={})
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    api.post(f"exchanges/{ESCAPED}/amq.default/publish", json=body)
    eventually(lambda: api.get(path).json()["messages"] == 1, "the message is counted")
    one = shown(pages.get(path))
    assert "Total 1" in one and "Tags a, b" in one and "Queued messages" in one
    listed = shown(pages.get("vhosts?columns=Name,Users,Total,Description"))
    assert f"{HOSTILE} guest d 1" in listed
    assert "changed." in shown(pages.post(path, data={"description": "other", "tracing": "true"}))
    found = api.get(path).json()
    assert (found["description"], found["tags"], found["tracing"]) == ("other", [], True)
    limits = {"max-connections": "", "max-queues": "3"}
    assert "Limits of" in shown(pages.post(f"{path}/limits", data=limits))
    assert api.get(f"vhost-limits/{ESCAPED}").json()[0]["value"] == {"max-queues": 3}
    assert "with 1 messages" in shown(pages.get(f"{path}?tab=delete"))
    assert "Not deleted" in shown(pages.post(f"{path}/delete", data={"confirmed": "x"}))
    place = f"{path}/delete?vhost={ESCAPED}"
    assert "deleted." in shown(pages.post(place, data={"confirmed": HOSTILE}))
    assert api.get(path).status_code == 404


def test_who_is_no_administrator_sees_the_own_vhosts_only(http_node: HttpNode) -> None:
    http_node.add_user("plain", "management")
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as plain:
        plain.post("login", data={"user": "plain", "password": "plain"})
        listed = plain.get("vhosts")
        assert "Ready" in shown(listed) and "Add a vhost" not in listed.text
        assert 'href="/vhosts/' not in listed.text
        for path in ("users", "vhosts/%2F", "users/guest", "rights?user=guest&operation=basic.get"):
            assert plain.get(path).status_code == 401, path
        assert plain.post("vhosts", data={"name": "x"}).status_code == 401
