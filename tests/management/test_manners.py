"""Manners of HTTP: what a client accepts, compression, odd requests; faults show no trace."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from tests.support.brokers.http_api import HttpNode, refusal
from warrenmq.management.error_replies import add_error_replies


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/html", 406),
        ("text/html, application/xml;q=0.9", 406),
        ("text/html, */*;q=0.1", 200),
        ("application/bert, application/json;q=0.1", 200),
        ("application/*", 200),
    ],
)
def test_a_client_must_accept_json(http_node: HttpNode, accept: str, status: int) -> None:
    """RabbitMQ asks for the login first, and refuses before it changes anything."""
    headers = {"accept": accept}
    client = http_node.client()
    assert client.get("whoami", headers=headers).status_code == status
    if status == 406:
        refused = client.put("queues/%2F/unseen", headers=headers)
        assert (refused.status_code, refused.content) == (406, b"")
        assert client.get("queues/%2F/unseen").status_code == 404
        assert httpx.get(f"{http_node.url}api/whoami", headers=headers).status_code == 401
        metrics = client.get(f"{http_node.url}metrics", headers={"accept": "text/plain"})
        assert metrics.status_code == 200


def test_large_replies_are_compressed_when_asked(http_node: HttpNode) -> None:
    client = http_node.client()
    plain = client.get("exchanges", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "br, gzip;q=0.5", "*"):
        packed = client.get("exchanges", headers={"accept-encoding": accepted})
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(plain.content)
        assert packed.json() == plain.json()
    for path, accepted in (("whoami", "gzip"), ("exchanges", "gzip;q=0"), ("exchanges", "br")):
        reply = client.get(path, headers={"accept-encoding": accepted})
        assert "content-encoding" not in reply.headers


def test_a_path_that_is_too_long(http_node: HttpNode) -> None:
    reply = http_node.client().get("queues/%2F/" + "x" * 8000)
    assert refusal(reply) == (414, "bad_request", "the path has more than 8000 bytes")


def test_bytes_that_are_no_request(http_node: HttpNode) -> None:
    parts = urlsplit(http_node.url)
    for sent in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"AMQP\0\0\x09\x01\r\n"):
        with socket.create_connection((parts.hostname or "", parts.port or 0), 30) as client:
            client.sendall(sent)
            assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_fault_shows_no_trace() -> None:
    app = FastAPI()
    add_error_replies(app)

    @app.get("/fault")
    def fault() -> None:
        raise RuntimeError("secret")

    async def reply() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get("http://node/fault")

    shown = asyncio.run(reply())
    assert (shown.status_code, json.loads(shown.text)["error"]) == (500, "internal_error")
    assert "secret" not in shown.text
