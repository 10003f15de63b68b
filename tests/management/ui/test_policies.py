"""The pages of policies: what they list and save, what they refuse, and the preview."""

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.brokers.http_api import HttpNode
from warrenmq.broker.policies import keys as of_broker
from warrenmq.management.ui.pages.policies import keys

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def api(http_node: HttpNode) -> httpx.Client:
    """The API of a node with queues and a policy `all` of priority 5 for names with an `a`."""
    client = http_node.client()
    for name in ("Orders", "orders.a", "orders.b"):
        client.put(f"queues/%2F/{name}", json={})
    policy = {"pattern": "a$", "definition": {"max-length": 10}, "priority": 5}
    client.put("policies/%2F/all", json=policy | {"apply-to": "queues"})
    return client


@pytest.fixture(scope="module")
def pages(http_node: HttpNode, api: httpx.Client) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        assert client.post("login", data={"user": "guest", "password": "guest"}).status_code == 200
        yield client


def shown(reply: httpx.Response) -> str:
    """The text of a page, without its tags."""
    assert HOSTILE not in reply.text
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def draft(**fields: object) -> dict[str, object]:
    """The fields of a form that has a policy without settings."""
    return {
        "kind": "user",
        "in_vhost": "/",
        "name": "mine",
        "pattern": "^orders",
        "apply_to": "queues",
        "priority": "1",
        "key": [],
        "value": [],
        "type": [],
    } | fields


def test_a_policy_with_values_of_all_types_is_saved_and_shown(
    pages: httpx.Client, api: httpx.Client
) -> None:
    form = draft(
        name=HOSTILE,
        key=["ha-mode", "ha-params", "max-length", ""],
        value=["nodes", "a@one, b@two", "7", ""],
        type=["string", "list", "number", "string"],
        save="1",
    )
    assert f"Policy {HOSTILE} saved." in shown(pages.post("policies/new", data=form))
    path = "policies/%2F/%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    row = api.get(path).json()
    definition = {"ha-mode": "nodes", "ha-params": ["a@one", "b@two"], "max-length": 7}
    assert (row["definition"], row["priority"], row["apply-to"]) == (definition, 1, "queues")
    again = pages.get(f"policies/user/{path.removeprefix('policies/')}")
    assert re.findall(r'name="value" value="([^"]+)"', again.text) == ["nodes", "a@one, b@two", "7"]
    place = f"policies/user/{path.removeprefix('policies/')}/delete"
    kept = pages.post(place, data={"confirmed": "another"})
    assert "Not deleted" in shown(kept)
    assert "deleted." in shown(pages.post(place, data={"confirmed": HOSTILE}))
    assert api.get(path).status_code == 404


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"key": ["max-length"], "value": ["many"], "type": ["number"]}, "max-length is no number"),
        (
            {"key": ["max-length"], "value": ["-1"], "type": ["number"]},
            "not a valid maximum length",
        ),
        ({"key": ["what"], "value": ["1"], "type": ["string"]}, "not recognised policy settings"),
        ({"priority": "high"}, "The priority is no number: high"),
        ({"key": ["a", "a"], "value": ["1", "1"], "type": ["string", "string"]}, "twice"),
    ],
)
def test_a_refused_policy_stays_in_the_form(
    pages: httpx.Client, fields: dict[str, object], reason: str
) -> None:
    reply = pages.post("policies/new", data=draft(**fields, save="1"))
    assert reply.status_code == 400
    assert reason in shown(reply)
    assert 'name="pattern" type="text" value="^orders"' in reply.text


def test_a_usual_key_is_added_to_the_form(pages: httpx.Client) -> None:
    reply = pages.post("policies/new", data=draft(add="max-length"))
    assert re.findall(r'name="key" value="([^"]*)"', reply.text) == ["max-length", ""]
    assert '<option value="number" selected>' in reply.text
    operator = shown(pages.get("policies/new?kind=operator"))
    assert "max-length" in operator and "ha-mode" not in operator


def test_the_preview_names_who_wins_and_saves_nothing(
    pages: httpx.Client, api: httpx.Client
) -> None:
    wanted = draft(key=["max-length"], value=["1"], type=["number"], preview="1")
    found = shown(pages.post("policies/new", data=wanted))
    assert "The pattern matches 2 of 3 queues." in found
    assert "orders.a all with priority 5 orders.b this policy" in found
    assert "Orders" not in found.split("Which policy wins")[1].split("Virtual host")[0]
    assert api.get("policies/%2F/mine").status_code == 404
    stronger = shown(pages.post("policies/new", data=wanted | {"priority": "6"}))
    assert "orders.a this policy" in stronger
    both = shown(pages.post("policies/new", data=wanted | {"apply_to": "all", "pattern": "direct"}))
    assert "matches none of 3 queues" in both and "amq.direct this policy" in both
    quorum = {"key": ["delivery-limit"], "value": ["3"], "type": ["number"]}
    assert "no delivery-limit" in shown(pages.post("policies/new", data=wanted | quorum))
    broken = pages.post("policies/new", data=wanted | {"pattern": "("})
    assert broken.status_code == 400 and "The pattern cannot be read" in shown(broken)


def test_who_may_not_set_policies_sees_them_only(http_node: HttpNode, pages: httpx.Client) -> None:
    http_node.add_user("viewer", "management")
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as viewer:
        viewer.post("login", data={"user": "viewer", "password": "viewer"})
        listed = viewer.get("policies")
        assert "a$" in shown(listed) and "policies/new" not in listed.text
        assert "policies/user/" not in listed.text
        refused = viewer.post("policies/new", data=draft(save="1"))
        assert refused.status_code == 400 and "not authorised" in shown(refused)
    assert "Add a policy" in shown(pages.get("policies?tab=operator"))


def test_the_usual_keys_are_those_of_the_broker() -> None:
    usual = {key.name: key.is_limit for _, group in keys.USUAL_KEYS for key in group}
    known = {name: of_broker.POLICY_KEYS[name].is_limit for name in usual}
    assert usual == known
    assert keys.NOT_FOR["classic"] == set(of_broker.NOT_CLASSIC)
    assert keys.NOT_FOR["quorum"] == set(of_broker.NOT_QUORUM)
