"""Who may see the pages: cookies, forms of other sites, users without a tag, idle users."""

import asyncio
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.support.brokers.http_api import HttpNode
from warrenmq.management.ui.api import Site
from warrenmq.management.ui.sign_ins import SignIns

GUEST = {"user": "guest", "password": "guest"}


def visitor(node: HttpNode) -> httpx.Client:
    return httpx.Client(base_url=node.url, timeout=30)


def test_pages_send_strangers_to_the_form_and_back(http_node: HttpNode) -> None:
    with visitor(http_node) as client:
        asked = client.get("overview?vhost=%2F&range=1h")
        assert asked.status_code == 303
        form = client.get(asked.headers["location"])
        assert 'value="/overview?vhost=%2F&amp;range=1h"' in form.text
        back = client.post("login", data={**GUEST, "to": "/overview?vhost=%2F&range=1h"})
        assert (back.status_code, back.headers["location"]) == (
            303,
            "/overview?vhost=%2F&range=1h",
        )
        cookie = back.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert client.get("overview").status_code == 200
        # The refresh of a page whose user has signed out leads to the form, too.
        client.post("logout")
        refresh = client.get("overview", headers={"hx-request": "true"})
        assert refresh.headers["hx-redirect"] == "/login"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_a_sign_in_leads_to_own_pages_only(http_node: HttpNode, to: str) -> None:
    with visitor(http_node) as client:
        assert client.post("login", data={**GUEST, "to": to}).headers["location"] == "/overview"


def test_a_wrong_password_is_said(http_node: HttpNode) -> None:
    with visitor(http_node) as client:
        refused = client.post("login", data={"user": "guest", "password": "<b>wrong</b>"})
        assert refused.status_code == 401
        assert "Login failed" in refused.text
        assert "set-cookie" not in refused.headers
    http_node.add_user("tagless")
    with visitor(http_node) as client:
        refused = client.post("login", data={"user": "tagless", "password": "tagless"})
        assert "Not management user" in refused.text


def test_forms_of_other_sites_are_refused(http_node: HttpNode) -> None:
    origin = {"origin": "https://evil.example"}
    fetched = {"sec-fetch-site": "cross-site"}
    with visitor(http_node) as client:
        assert client.post("login", data=GUEST, headers=origin).status_code == 403
        assert client.post("login", data=GUEST).status_code == 303
        for headers in (origin, fetched):
            assert client.post("logout", headers=headers).status_code == 403
        assert client.get("overview").status_code == 200
        own = {
            "origin": f"http://{urlsplit(http_node.url).netloc}",
            "sec-fetch-site": "same-origin",
        }
        assert client.post("logout", headers=own).status_code == 303


def test_headers_allow_nothing_of_other_sites(http_node: HttpNode) -> None:
    with visitor(http_node) as client:
        for path in ("login", "static/htmx.js", "nowhere"):
            policy = client.get(path).headers["content-security-policy"]
            assert policy.startswith("default-src 'self'; ")
            assert "unsafe" not in policy
        assert client.get("static/nothing.js").status_code == 404
        assert client.get("static/%2E%2E%2Fapp.py").status_code == 404


def test_who_does_nothing_is_signed_out() -> None:
    async def api(_scope: Scope, _receive: Receive, send: Send) -> None:
        body = b'{"ticket": "t", "user": "u", "tags": ["management"]}'
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def run() -> None:
        now_s = 0.0
        sign_ins = SignIns(Site(api, ""), 60, lambda: now_s)
        name = await sign_ins.sign_in("u", "p", "127.0.0.1")
        for _ in range(3):
            now_s += 50
            assert sign_ins.find(name, is_used=True) is not None
        # A page that refreshes itself is no use.
        now_s += 50
        assert sign_ins.find(name, is_used=False) is not None
        now_s += 50
        assert sign_ins.find(name, is_used=True) is None

    asyncio.run(run())
