"""Who may ask what, with RabbitMQ's texts; paths and methods."""

import asyncio

import httpx
import pytest
from starlette.requests import Request

from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.admin.protocol.control import SetUserTags
from warrenmq.management.access import management_user
from warrenmq.management.errors import HttpRefusal
from warrenmq.management.login_gate import LoginGate
from warrenmq.management.process import place_of_directory
from warrenmq.management.sessions import Sessions


def test_a_login_is_asked_for(http_node: HttpNode) -> None:
    reply = httpx.get(f"{http_node.url}api/whoami")
    assert (reply.status_code, reply.content) == (401, b"")
    assert reply.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
    for user, password in (("guest", "wrong"), ("nobody", "guest"), ("guest", "")):
        reply = http_node.client(user, password).get("whoami")
        assert refusal(reply) == (401, "not_authorized", "Login failed")
    assert httpx.get(f"{http_node.url}api/auth").status_code == 200


def test_each_tag_opens_its_endpoints(http_node: HttpNode) -> None:
    clients = {tag: http_node.add_user(f"u-{tag}", tag) for tag in ("management", "monitoring")}
    clients["policymaker"] = http_node.add_user("u-policymaker", "policymaker")
    plain = http_node.add_user("u-plain")
    assert refusal(plain.get("overview")) == (401, "not_authorised", "Not management user")
    assert clients["management"].get("whoami").json() == {
        "name": "u-management",
        "tags": ["management"],
    }
    refused = refusal(clients["management"].get("nodes"))
    assert refused == (401, "not_authorised", "Not monitor user")
    refused = refusal(clients["monitoring"].get("users"))
    assert refused == (401, "not_authorised", "Not administrator user")
    assert clients["monitoring"].get("nodes").status_code == 200
    assert clients["monitoring"].get("parameters").status_code == 401
    assert clients["policymaker"].get("parameters").status_code == 200


def test_a_user_sees_its_own_vhosts(http_node: HttpNode) -> None:
    own = http_node.add_user("own", "management", vhosts=("mine",))
    http_node.add_user("other", "management", vhosts=("theirs",))
    assert [row["name"] for row in own.get("vhosts").json()] == ["mine"]
    assert {row["vhost"] for row in own.get("exchanges").json()} == {"mine"}
    assert own.get("exchanges/theirs").status_code == 401
    assert own.get("exchanges/nowhere").status_code == 401
    all_seen = http_node.add_user("seer", "monitoring", vhosts=())
    assert {"mine", "theirs"} <= {row["name"] for row in all_seen.get("vhosts").json()}
    assert {"mine", "theirs"} <= {row["vhost"] for row in all_seen.get("exchanges").json()}
    assert all_seen.get("exchanges/theirs").status_code == 401
    assert all_seen.get("exchanges/nowhere").status_code == 404


def test_a_changed_tag_counts_at_once(http_node: HttpNode) -> None:
    client = http_node.add_user("climber", "management")
    assert client.get("users").status_code == 401
    http_node.control(SetUserTags(name="climber", tags=["administrator"]))
    assert client.get("users").status_code == 200


def test_guest_logs_in_on_the_machine_only(http_node: HttpNode) -> None:
    """The rule itself, with an address that no client of a test can have."""

    class App:
        class State:
            sessions = Sessions(place_of_directory(http_node.node.directory / "data"))
            login_gate = LoginGate()

        state = State

    def asked_from(peer: str) -> Request:
        login = httpx.BasicAuth("guest", "guest")
        header = next(login.sync_auth_flow(httpx.Request("GET", "http://x/"))).headers
        headers = [(b"authorization", header["authorization"].encode())]
        return Request(
            {
                "type": "http", "method": "GET", "path": "/api/whoami", "headers": headers,
                "client": (peer, 1), "app": App,
            }
        )  # fmt: skip

    for peer in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        assert asyncio.run(management_user(asked_from(peer))).tags == ["administrator"]
    for peer in ("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"):
        with pytest.raises(HttpRefusal, match="User can only log in via localhost"):
            asyncio.run(management_user(asked_from(peer)))
    App.state.sessions.close()


def test_paths_and_methods(http_node: HttpNode) -> None:
    client = http_node.client()
    assert client.get("exchanges/%2F/amq.topic").json()["name"] == "amq.topic"
    assert client.get("exchanges/%2f/amq.topic/").json()["vhost"] == "/"
    assert client.get("vhosts/").status_code == 200
    plain = {"accept-encoding": "identity"}
    head = client.head("vhosts", headers=plain)
    assert (head.status_code, head.content) == (200, b"")
    shown = client.get("vhosts", headers=plain)
    assert head.headers["content-length"] == str(len(shown.content))
    options = httpx.options(f"{http_node.url}api/whoami")
    assert (options.status_code, options.headers["allow"]) == (200, "GET, HEAD, OPTIONS")
    wrong = client.patch("whoami")
    assert (wrong.status_code, wrong.content) == (405, b"")
    assert wrong.headers["allow"] == "GET, HEAD, OPTIONS"
    assert refusal(client.get("nothing")) == (404, "Object Not Found", "Not Found")
    assert client.get("whoami").headers["cache-control"] == "no-cache"


def test_another_site_changes_nothing(http_node: HttpNode) -> None:
    """A browser sends the login it remembers along with a form of any site."""
    client = http_node.client()
    foreign = client.put("queues/%2F/stolen", headers={"origin": "http://elsewhere.example"})
    assert refusal(foreign)[:2] == (401, "not_authorised")
    null = client.put("queues/%2F/stolen", headers={"origin": "null"})
    assert refusal(null)[0] == 401
    assert client.get("queues/%2F/stolen").status_code == 404
    own = {"origin": http_node.url.rstrip("/")}
    assert client.put("queues/%2F/own", headers=own).status_code == 201
    assert client.delete("queues/%2F/own", headers=own).status_code == 204


def test_a_ticket_serves_as_the_password_until_that_changes(http_node: HttpNode) -> None:
    owner = http_node.add_user("ticketed", "management", vhosts=("mine",))
    issued = owner.post("warren/tickets").json()
    assert (issued["user"], issued["tags"]) == ("ticketed", ["management"])
    client = http_node.client("ticketed", issued["ticket"])
    assert client.get("whoami").json()["name"] == "ticketed"
    assert client.put("queues/mine/by-ticket", json={}).status_code == 201
    assert http_node.client("guest", issued["ticket"]).get("whoami").status_code == 401
    renewed = client.post("warren/tickets").json()["ticket"]
    assert http_node.client("ticketed", renewed).get("whoami").status_code == 200
    http_node.client().put("users/ticketed", json={"password": "other", "tags": "management"})
    assert http_node.client("ticketed", renewed).post("warren/tickets").status_code == 401
