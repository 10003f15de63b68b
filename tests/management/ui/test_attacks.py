"""An attacker's afternoon: stored scripts, other sites, thieves, foreign users, floods.

The tests walk all pages and all forms of the application, so a new one is tried as well.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.management.ui.seeded import ESCAPED, HIDDEN, READER, SCRIPT, Seeded, seeded
from tests.support.brokers.http_api import HttpNode
from warrenmq.management.ui.app import ROUTERS

ROUTES = [each for router in ROUTERS for each in router.routes if isinstance(each, APIRoute)]
PAGES = [route for route in ROUTES if "GET" in (route.methods or ())]
FORMS = [route for route in ROUTES if "POST" in (route.methods or ())]
# Pages that no link leads to: what asks a question, and the mirrors of a queue.
UNLINKED = (
    "/search?q=script",
    f"/search?q={ESCAPED}",
    f"/rights?user={ESCAPED}&in_vhost={ESCAPED}&operation=queue.bind&name={ESCAPED}&other=x&key=k",
    f"/exchanges/{ESCAPED}/{ESCAPED}?tab=route&key={ESCAPED}",
    f"/queues/{ESCAPED}/{ESCAPED}?tab=messages&search=hush&header=deep",
    f"/queues?name={ESCAPED}&policy={ESCAPED}",
    f"/queues/{ESCAPED}/none{ESCAPED}",
    f"/mirrors/{ESCAPED}/{ESCAPED}",
    f"/overview?vhost={ESCAPED}&range={ESCAPED}&tab={ESCAPED}&page={ESCAPED}&sort={ESCAPED}",
)
# The only elements and attributes that could run something are those of the frame.
FORBIDDEN = {"img", "iframe", "object", "embed", "style", "base", "template", "audio", "video"}
URLS = {"href", "src", "action", "hx-get", "formaction"}
ACTIONS = ("delete", "purge", "pause", "sync")


class Page(HTMLParser):
    """The links of a document, and what in it could run a script or lead elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.faults: list[str] = []
        self._is_in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "script":
            self._is_in_script = True
            if set(has) != {"src", "defer"} or has["src"] != "/static/htmx.js":
                self.faults.append(f"script {has}")
        if tag in FORBIDDEN:
            self.faults.append(f"{tag} {has}")
        for name, value in has.items():
            if name.startswith("on") or name in ("style", "srcdoc", "http-equiv"):
                self.faults.append(f"{tag} {name}={value}")
            if name in URLS and not (re.match(r"/(?![/\\])", value) or value == "#main"):
                self.faults.append(f"{tag} {name}={value}")
        if tag == "a":
            self.links.append(has["href"])

    def handle_endtag(self, tag: str) -> None:
        self._is_in_script = self._is_in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_in_script:
            self.faults.append(f"script: {data}")


@pytest.fixture(scope="module")
def node(http_node: HttpNode) -> Iterator[Seeded]:
    with seeded(http_node) as found:
        yield found


@pytest.fixture(scope="module")
def crawled(node: Seeded) -> dict[str, str]:
    """All pages that links of pages lead to, by URL; a tab is a page, an order of rows is not."""
    found: dict[str, str] = {}
    waiting = ["/overview", *UNLINKED]
    seen = set(waiting)
    with node.pages() as browser:
        while waiting:
            url = waiting.pop()
            reply = browser.get(url)
            assert reply.status_code < 500, url
            if reply.headers["content-type"].startswith("text/html"):
                found[url] = reply.text
                for link in Page(reply.text).links:
                    path, _, query = link.partition("?")
                    tab = dict(parse_qsl(query)).get("tab")
                    shown = f"{path}?tab={tab}" if tab else path
                    # A report is a document of its own, which has no rights in this site.
                    is_page = shown.startswith("/") and not path.endswith("/report")
                    if is_page and shown not in seen:
                        seen.add(shown)
                        waiting.append(shown)
    return found


@pytest.fixture(scope="module", params=["management", "policymaker"])
def outsider(request: pytest.FixtureRequest, node: Seeded) -> Iterator[httpx.Client]:
    """A browser of a user with all rights in another vhost."""
    name = f"outsider-{request.param}"
    node.node.add_user(name, request.param, vhosts=("own",))
    with node.pages(name, name) as browser:
        yield browser


def route_of(url: str) -> str:
    """The pattern of the page at a URL."""
    path = url.partition("?")[0]
    return next(route.path for route in PAGES if route.path_regex.match(path))


def test_each_page_is_reached(crawled: dict[str, str]) -> None:
    assert {route.path for route in PAGES} - {route_of(url) for url in crawled} == {
        "/definitions/export",
        "/pipeline/jobs/{name:segment}/report",
    }


def test_what_is_stored_runs_nowhere(crawled: dict[str, str]) -> None:
    faults = {url: Page(text).faults for url, text in crawled.items()}
    assert {url: found for url, found in faults.items() if found} == {}
    # The scripts are there, as text.
    assert sum("hush" in text for text in crawled.values()) > 20


def test_another_vhost_shows_nothing(crawled: dict[str, str], outsider: httpx.Client) -> None:
    for url in crawled:
        text = outsider.get(url).text
        assert "hush" not in text.replace(quote(HIDDEN), ""), url
        if ESCAPED not in url and "script" not in url:
            assert "alert(1)" not in text, url


def forms_of(node: Seeded, action: str, confirmed: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each form route with names that exist, and fields that would do something."""
    names = {"connections": node.connection, "pipeline": READER}
    fields = {
        "action": action, "confirmed": confirmed, "chosen": f"{ESCAPED}/{ESCAPED}", "save": "1",
        "in_vhost": SCRIPT, "into_vhost": SCRIPT, "vhost": SCRIPT, "of": SCRIPT, "user": SCRIPT,
        "name": SCRIPT, "queue": "new", "type": "fanout", "exchange": SCRIPT, "source": SCRIPT,
        "kind": "q", "destination": SCRIPT, "other": SCRIPT, "properties_key": HIDDEN,
        "pattern": "", "apply_to": "all", "priority": "9", "key": "max-length", "value": "1",
        "count": "1", "to": "queue", "ackmode": "ack_requeue_false", "routing_key": SCRIPT,
        "payload": "x", "payload_encoding": "string", "digest": "x", "login": "none",
        "max-queues": "0", "max-connections": "0", "max-channels": "0", "configure": "",
        "write": "", "read": "", "description": "changed",
    }  # fmt: skip
    for route in FORMS:
        kind = "permissions" if "clear" in route.path else "user"
        name = names.get(route.path.split("/")[1], SCRIPT)
        values = {"kind": kind, "name": name, "vhost": SCRIPT, "node": "none"}
        segments = re.findall(r"{(\w+)[^}]*}|([^/{}]+)", route.path)
        path = "/".join(
            [quote(values.get(key, SCRIPT), "") if key else text for key, text in segments]
        )
        yield f"/{path}", fields


def state_of(node: Seeded) -> dict[str, Any]:
    """All that the forms could change."""
    guest = node.node.client()
    found: dict[str, Any] = guest.get("definitions").json()
    vhosts = [row["name"] for row in guest.get("vhosts").json()]
    of_users = ("users", "permissions", "topic_permissions", "policies", "parameters")
    kept: dict[str, Any] = {name: sorted(map(str, found[name])) for name in of_users}
    rows = guest.get("queues").json()
    kept["queues"] = [(row["name"], row["messages"], row["state"]) for row in rows]
    kept["connections"] = [row["name"] for row in guest.get("connections").json()]
    kept["others"] = [found["exchanges"], found["bindings"], vhosts]
    for each in ("groups", "sinks"):
        replies = [guest.get(f"warren/{each}/{quote(vhost, '')}") for vhost in vhosts]
        kept[each] = [row["name"] for reply in replies if reply.is_success for row in reply.json()]
    return kept


def test_forms_change_nothing_for_foreign_users(node: Seeded, outsider: httpx.Client) -> None:
    before = state_of(node)
    for action in ACTIONS:
        for path, fields in forms_of(node, action, "1" if action == "purge" else SCRIPT):
            reply = outsider.post(path, data=fields)
            assert reply.status_code < 500, path
            assert "hush" not in reply.text, path
    assert state_of(node) == before


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
def test_forms_of_other_sites_change_nothing(node: Seeded, headers: dict[str, str]) -> None:
    before = state_of(node)
    with node.pages() as browser:
        for path, fields in forms_of(node, "delete", SCRIPT):
            assert browser.post(path, data=fields, headers=headers).status_code == 403, path
        for path in ("/login", "/logout", "/theme"):
            assert browser.post(path, data={}, headers=headers).status_code in (403, 422), path
        assert (
            "access-control-allow-origin" not in browser.get("/overview", headers=headers).headers
        )
    assert state_of(node) == before


def test_a_page_is_nothing_without_its_cookie(
    node: Seeded, http_node: HttpNode, crawled: dict[str, str]
) -> None:
    before = state_of(node)
    with httpx.Client(base_url=http_node.url, timeout=60) as thief:
        for url in crawled:
            reply = thief.get(url)
            assert (reply.status_code, reply.text) == (303, ""), url
            assert thief.get(url, headers={"hx-request": "true"}).text == ""
        for path, fields in forms_of(node, "delete", SCRIPT):
            reply = thief.post(path, data=fields)
            assert (reply.status_code, reply.text) == (303, ""), path
    assert state_of(node) == before


def test_a_sign_in_makes_a_new_cookie_and_ends_the_old_one(http_node: HttpNode) -> None:
    http_node.add_user("victim", "management")
    with httpx.Client(base_url=http_node.url, timeout=60) as browser:
        guest = {"user": "guest", "password": "guest"}
        browser.cookies.set("warren_session", "chosen-by-the-attacker")
        cookies = []
        for fields in (guest, {"user": "victim", "password": "victim"}):
            reply = browser.post("login", data=fields)
            cookies.append(reply.cookies["warren_session"])
        browser.post("logout")
    assert len({*cookies, "chosen-by-the-attacker"}) == 3
    for stolen in ("chosen-by-the-attacker", *cookies):
        reply = httpx.get(f"{http_node.url}overview", cookies={"warren_session": stolen})
        assert reply.status_code == 303


@pytest.mark.parametrize(
    "to",
    ["/\t/evil.example", "/\r\nset-cookie: a=b", "/%0d%0aset-cookie: a=b", "\\\\evil", "/\\/e"],
)
def test_addresses_to_go_on_to_stay_on_the_site(http_node: HttpNode, to: str) -> None:
    with httpx.Client(base_url=http_node.url, timeout=60) as browser:
        reply = browser.post("login", data={"user": "guest", "password": "guest", "to": to})
        theme = browser.post("theme", data={"theme": "dark", "back": to})
        assert "a=b" not in theme.headers.get_list("set-cookie")[0]
        form = browser.post("new-queue", data={"queue": "", "back": to})
    for each in (reply, theme):
        parts = urlsplit(each.headers["location"])
        assert not parts.netloc and re.match(r"/[^/\\\s]", parts.path)
        assert len(each.headers.get_list("set-cookie")) == 1
    assert form.status_code in (400, 404)


def test_names_with_line_ends_make_no_headers(http_node: HttpNode) -> None:
    name = "a\r\nset-cookie: stolen=1\r\n\r\n<b>"
    path = f"queues/%2F/{quote(name, '')}"
    with httpx.Client(base_url=http_node.url, timeout=60) as browser:
        browser.post("login", data={"user": "guest", "password": "guest"})
        made = browser.post("new-queue", data={"vhost": "/", "queue": name, "durable": "true"})
        for reply in (
            made,
            browser.post(f"{path}/do", data={"action": "pause"}),
            browser.post(f"{path}/move", data={"destination": name}),
            browser.post(f"{path}/do", data={"action": "delete", "confirmed": name}),
            browser.post("connections/none/close", data={"reason": name}),
        ):
            assert "set-cookie" not in reply.headers
            assert reply.status_code in (303, 400, 404)


@pytest.mark.parametrize(
    "path",
    [
        "static/../app.py", "static/..%2Fapp.py", "static/%2e%2e/app.py", "static/htmx.js%00",
        "static/..%5capp.py", "static//etc/passwd", "static/%252e%252e%252fapp.py",
    ],
)  # fmt: skip
def test_static_files_are_those_and_no_others(http_node: HttpNode, path: str) -> None:
    head = f"GET /{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert exchanged(http_node, head.encode()).startswith(b"HTTP/1.1 404 ")


def test_floods_are_refused_without_memory(http_node: HttpNode) -> None:
    """Each is refused before it is read, so that nobody waits for it and nothing is kept."""
    flood = b"x" * 10_000_000
    before = resident_kib(http_node)
    post = b"POST /login HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    for _ in range(3):
        for head, status in (
            (b"GET /overview HTTP/1.1\r\nhost: x\r\nx: " + flood, b"431"),
            (b"GET /overview HTTP/1.1\r\nhost: x\r\ncookie: warren_session=" + flood, b"431"),
            (b"GET /" + flood, b"431"),
            (b"GET /api/overview HTTP/1.1\r\n" + b"x: y\r\n" * 1_000_000, b"431"),
            (post + b"content-length: 1000000000\r\n\r\nuser=" + flood, b"413"),
            (post + b"content-length: 20000\r\n\r\nuser=", b"413"),
            (post + b"transfer-encoding: chunked\r\n\r\n5\r\nuser=\r\n", b"411"),
        ):
            assert exchanged(http_node, head)[9:12] == status
    # The API reads a chunked body up to its limit, and knows no compressed ones.
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    api = b"PUT /api/vhosts/x HTTP/1.1\r\nhost: x\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    endless = api + b"transfer-encoding: chunked\r\n\r\n" + chunk * 20
    assert exchanged(http_node, endless)[9:12] == b"413"
    bomb = api + b"content-encoding: gzip\r\ncontent-length: 20\r\n\r\n" + b"\x1f\x8b" * 10
    assert exchanged(http_node, bomb)[9:12] == b"400"
    assert resident_kib(http_node) - before < 32_000


def test_others_are_served_beside_clients_that_hang_and_guess(http_node: HttpNode) -> None:
    """A node answers guesses late, and the API's threads wait for it; here for 40 of them."""
    url = urlsplit(http_node.url)
    assert url.hostname is not None
    kind = b"content-type: application/x-www-form-urlencoded"
    guess = b"POST /login HTTP/1.1\r\nhost: x\r\n" + kind + b"\r\ncontent-length: 16\r\n\r\n"
    heads = (b"GET /overview HTTP/1.1\r\nx: y", guess, guess + b"user=x&password")
    sockets = [socket.create_connection((url.hostname, url.port or 80)) for _ in range(120)]
    for number, each in enumerate(sockets):
        each.sendall(heads[number % 3])
        each.setblocking(False)
    for each in sockets[1::3]:
        each.sendall(b"user=x&password=")
    with httpx.Client(base_url=http_node.url, timeout=60) as browser:
        assert http_node.client().get("whoami").status_code == 200
        fields = {"user": "guest", "password": "guest"}
        assert browser.post("login", data=fields).status_code == 303
        assert browser.get("overview").status_code == 200
    unanswered = 0
    for each in sockets[1::3]:
        try:
            each.recv(1)
        except BlockingIOError:
            unanswered += 1
    assert unanswered > 20
    for each in sockets:
        each.close()


def test_the_forms_work_for_who_may(node: Seeded) -> None:
    """The walks above send forms that do something, if their user may."""
    before = state_of(node)
    with node.pages() as browser:
        for path, fields in forms_of(node, "delete", SCRIPT):
            browser.post(path, data=fields)
    after = state_of(node)
    for name in ("queues", "connections", "policies", "others"):
        assert before[name] != after[name], name


def exchanged(node: HttpNode, request: bytes) -> bytes:
    """The first bytes of the reply to a request that may be refused while it is being sent."""
    url = urlsplit(node.url)
    assert url.hostname is not None
    with closing(socket.create_connection((url.hostname, url.port or 80), timeout=60)) as client:
        # The end of the connection may come before the last of what is sent.
        with suppress(ConnectionError):
            client.sendall(request)
        with suppress(ConnectionError):
            return client.recv(200)
    return b""


def resident_kib(node: HttpNode) -> int:
    """The memory of the process of the API."""
    texts = [path.read_text() for path in Path(f"/proc/{node.pid}/task").glob("*/children")]
    (child,) = " ".join(texts).split()
    status = Path(f"/proc/{child}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
