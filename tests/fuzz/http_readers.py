"""The readers of requests of the HTTP API: JSON bodies, forms, and whole requests to a node.

A whole request is kept as a user, a method and a path with query on the first line, and its body
behind it. It is sent as guest: guesses of passwords would be answered late.
"""

import random
import re
from collections.abc import Callable
from typing import Final

import httpx

from tests.fuzz.campaign import Reader
from tests.fuzz.mutator import mutate
from warrenmq.admin.protocol.schedules import parse_schedule
from warrenmq.management.bodies import field_of_form, parsed
from warrenmq.management.errors import HttpRefusal

_NAMES: Final = ("name", "arguments", "durable", "priority", "tags")
_FORM: Final = "multipart/form-data; boundary=XX"
# What ends the node, or its clients, or waits for something; and checks, which may fail with 503.
_LEFT_OUT: Final = re.compile(rb"/(health|healthchecks|aliveness-test|jobs|feed|log|processes)")


def read_body(data: bytes) -> None:
    """A JSON body, and each of its fields as every type."""
    body = parsed(data)
    body.require("name")
    for name in _NAMES:
        for take in (body.text, body.flag, body.number, body.table, body.names):
            try:
                take(name)
            except HttpRefusal:
                continue


def read_form(data: bytes) -> None:
    """A form with a file of definitions, as a browser sends it."""
    assert isinstance(field_of_form(_FORM, data, "file"), bytes)


def read_schedule(data: bytes) -> None:
    """The value of a parameter with a schedule of jobs."""
    parse_schedule(data.decode("utf-8", "replace"))


def mutate_request(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Damage the query, the path or the body of a request; its user and method stay."""
    line, _, body = data.partition(b"\n")
    user, method, path = line.split(b" ", 2)
    _, _, other_body = other.partition(b"\n")
    other_path = other.partition(b"\n")[0].split(b" ", 2)[2]
    part = rng.randrange(4)
    if part == 0:
        path = mutate(rng, path, other_path)
    elif part == 1:
        query = mutate(rng, path.partition(b"?")[2] or b"page=1&page_size=9", other_path)
        path = path.partition(b"?")[0] + b"?" + query
    else:
        body = mutate(rng, body or b"{}", other_body)
    return b" ".join((user, method, path)) + b"\n" + body


def request_reader(client: httpx.Client) -> Reader:
    """The reader of requests of the node whose API is the base of `client`."""

    def read(data: bytes) -> None:
        line, _, body = data.partition(b"\n")
        method, path = (part.decode("latin-1") for part in line.split(b" ", 2)[1:])
        path = re.sub(r"[\x00-\x20\x7f-\xff#]", lambda found: f"%{ord(found[0]):02x}", path)
        if _LEFT_OUT.search(("/" + path).encode("latin-1")):
            return
        reply = client.request(method, path, content=body, auth=("guest", "guest"))
        assert reply.status_code < 500, f"{reply.status_code} {reply.text[:200]}"

    return Reader(read, (httpx.InvalidURL,), mutate_request, fixed_bytes=8 << 20)


Requests = Callable[[], Reader]
READERS = {
    "http-body": Reader(read_body, (HttpRefusal,)),
    "schedule": Reader(read_schedule, (ValueError,)),
    "http-form": Reader(read_form, (HttpRefusal,)),
}
