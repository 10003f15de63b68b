"""The listeners of the HTTP API: TLS, prefix, CORS, limits, slow clients, logs."""

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode, refusal
from tests.support.certificates import Authority

ORIGIN = "https://pages.example"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[HttpNode]:
    """A node whose API has all options; its AMQP listener takes clients of a proxy only."""
    directory = tmp_path_factory.mktemp("listener")
    node = HttpNode(directory)
    server = authority.issue("server")
    node.node.settings = (
        "proxy_protocol=true",
        "connection_max=1",
        f"management.ssl.certfile={server.certfile}",
        f"management.ssl.keyfile={server.keyfile}",
        f"management.ssl.cacertfile={authority.certfile}",
        "management.ssl.verify=verify_peer",
        "management.ssl.fail_if_no_peer_cert=true",
        "management.ssl.ip=127.0.0.1",
        "management.ssl.port=0",
        "management.path_prefix=/rabbit",
        f"management.cors.allow_origins.1={ORIGIN}",
        "management.cors.max_age=77",
        "management.hsts.policy=max-age=9",
        "management.http.max_body_size=1000",
        "management.http.max_connections=3",
        "management.tcp.request_timeout=2000",
        "management.tcp.idle_timeout=2000",
        f"management.http_log_dir={directory}/access",
    )
    node.start()
    # Both listeners of the API are ready.
    node.await_start(1)
    yield node
    node.stop()


def urls(node: HttpNode) -> dict[str, str]:
    """The address of each listener by its scheme."""
    log = node.node.log_path.read_text()
    return dict(re.findall(r"ready: (https?)(://\S+/)api/", log))


@pytest.fixture
def api(node: HttpNode) -> Iterator[httpx.Client]:
    root = f"http{urls(node)['http']}"
    with httpx.Client(base_url=f"{root}api/", auth=("guest", "guest"), timeout=30) as client:
        yield client


def connected(api: httpx.Client) -> socket.socket:
    return socket.create_connection((api.base_url.host, api.base_url.port or 0), 30)


def test_tls_asks_for_a_certificate(node: HttpNode, authority: Authority) -> None:
    url = f"https{urls(node)['https']}api/whoami"
    trusting = ssl.create_default_context(cafile=authority.certfile)
    with pytest.raises(httpx.TransportError):
        httpx.get(url, verify=trusting, auth=("guest", "guest"))
    mine = authority.issue("client")
    trusting.load_cert_chain(mine.certfile, mine.keyfile)
    reply = httpx.get(url, verify=trusting, auth=("guest", "guest"), timeout=30)
    assert reply.json()["name"] == "guest"


def test_a_new_certificate_is_used(node: HttpNode, authority: Authority) -> None:
    port = httpx.URL(f"https{urls(node)['https']}").port or 0
    shown = ssl.get_server_certificate(("127.0.0.1", port))
    authority.issue("server")
    eventually(
        lambda: ssl.get_server_certificate(("127.0.0.1", port)) != shown,
        "the new one is shown",
        0.3,
    )


def test_certificates_that_expire_soon_fail_a_check(api: httpx.Client) -> None:
    """Those of the tests are valid for 30 days."""
    path = "health/checks/certificate-expiration"
    assert api.get(f"{path}/3/weeks").json() == {"status": "ok"}
    reply = api.get(f"{path}/2/months")
    (row,) = reply.json()["expired"]
    assert (reply.status_code, row["interface"], row["protocol"]) == (503, "127.0.0.1", "https")


def test_a_node_that_takes_no_more_connections_fails_a_check(
    node: HttpNode, api: httpx.Client
) -> None:
    path = "health/checks/below-node-connection-limit"
    assert api.get(path).json() == {"status": "ok", "current": 0, "limit": 1}
    with socket.create_connection(("127.0.0.1", node.node.port), 30) as client:
        client.sendall(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nAMQP\0\0\x09\x01")
        assert client.recv(1)
        reply = api.get(path)
        assert (reply.status_code, reply.json()["current"]) == (503, 1)
    eventually(lambda: api.get(path).status_code == 200, "the client has gone")


def test_new_authorities_are_trusted(node: HttpNode, authority: Authority, tmp_path: Path) -> None:
    """Clients of the new authority are served, and those of the old one no more."""
    url = f"https{urls(node)['https']}api/whoami"
    other = Authority(tmp_path, "other")
    clients = [ssl.create_default_context(cafile=authority.certfile) for _ in range(2)]
    for client, issuer in zip(clients, (authority, other), strict=True):
        mine = issuer.issue("client")
        client.load_cert_chain(mine.certfile, mine.keyfile)

    def served() -> list[bool]:
        return [_is_served(url, client) for client in clients]

    before = authority.certfile.read_bytes()
    assert served() == [True, False]
    authority.certfile.write_bytes(other.certfile.read_bytes())
    eventually(lambda: served() == [False, True], "the new authority is trusted", 0.3)
    authority.certfile.write_bytes(before)
    eventually(lambda: served() == [True, False], "the old authority is trusted again", 0.3)


def _is_served(url: str, client: ssl.SSLContext) -> bool:
    try:
        return httpx.get(url, verify=client, auth=("guest", "guest")).status_code == 200
    except httpx.TransportError:
        return False


def test_paths_begin_with_the_prefix(api: httpx.Client) -> None:
    assert api.get("whoami/").status_code == 200
    assert refusal(api.get("/api/whoami"))[0] == 404
    assert refusal(api.get("/rabbitapi/whoami"))[0] == 404


def test_pages_of_an_allowed_site_may_ask(api: httpx.Client) -> None:
    """The replies are RabbitMQ's, but for `max-age`, which it forgets."""
    asked = {"origin": ORIGIN, "access-control-request-headers": "authorization"}
    reply = api.options("queues/%2F/q", headers=asked)
    assert reply.headers["access-control-allow-origin"] == ORIGIN
    assert reply.headers["access-control-allow-headers"] == "authorization"
    assert "PUT" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-max-age"] == "77"
    assert api.put("queues/%2F/q", headers={"origin": ORIGIN}).status_code == 201
    stranger = api.put("queues/%2F/q", headers={"origin": "https://other.example"})
    assert stranger.status_code == 401
    assert "access-control-allow-origin" not in stranger.headers


def test_headers_of_the_configuration_are_sent(api: httpx.Client) -> None:
    headers = api.get("whoami").headers
    assert headers["strict-transport-security"] == "max-age=9"
    assert headers["x-content-type-options"] == "nosniff"
    assert "date" in headers


def test_a_large_body_is_refused(api: httpx.Client) -> None:
    reply = api.put("queues/%2F/q", content=b" " * 1001)
    assert refusal(reply) == (413, "bad_request", "the body has more than 1000 bytes")


def test_a_client_that_stops_in_a_request_is_left(api: httpx.Client) -> None:
    """It stops in the head of a request, or in the body."""
    with connected(api) as first, connected(api) as second:
        first.sendall(b"GET /rabbit/api/who")
        second.sendall(
            b"PUT /rabbit/api/queues/%2F/q HTTP/1.1\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
            b"host: x\r\ncontent-length: 9\r\n\r\n{"
        )
        assert api.get("whoami").status_code == 200
        for client in (first, second):
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_an_endless_head_is_refused(api: httpx.Client) -> None:
    with connected(api) as client:
        client.sendall(b"GET /rabbit/api/whoami HTTP/1.1\r\n")
        client.sendall(b"x: " + b"y" * 400_000)
        assert client.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_one_connection_too_many_is_refused(api: httpx.Client) -> None:
    held = [connected(api) for _ in range(3)]
    try:
        with connected(api) as client:
            assert client.recv(65536).startswith(b"HTTP/1.1 503 ")
    finally:
        for each in held:
            each.close()
    eventually(lambda: status_of(api) == 200, "there is room again")


def status_of(api: httpx.Client) -> int:
    try:
        return api.get("whoami").status_code
    except httpx.TransportError:
        return 0


def test_each_request_is_logged(node: HttpNode, api: httpx.Client) -> None:
    assert api.get('overview?x="', headers={"user-agent": 'a "b"'}).status_code == 200
    (file,) = (node.node.directory / "access").iterdir()
    expected = (
        r'127\.0\.0\.1 - guest \[[^]]+\] "GET /rabbit/api/overview\?x=%22 HTTP/1\.1" 200 \d+ '
        r'"" "a \\"b\\""'
    )
    # A line may be written after its reply.
    eventually(lambda: re.search(f"(?m)^{expected}$", file.read_text()) is not None, "the line")
