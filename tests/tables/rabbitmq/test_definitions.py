"""Tests exports of definitions: typed fields, untyped rest, refused files."""

from pathlib import Path

import pytest

from warrenmq.tables.rabbitmq.definitions import (
    DefinitionsError,
    parse_definitions,
    read_definitions,
)

EXPORT = b"""{
  "rabbit_version": "3.10.8",
  "users": [{"name": "guest"}],
  "vhosts": [{"name": "/", "limits": []}],
  "queues": [{"name": "q", "vhost": "/", "durable": true, "auto_delete": false, "type": "classic",
              "arguments": {"x-max-priority": 3}}],
  "exchanges": [{"name": "x", "vhost": "/", "type": "topic", "durable": false, "auto_delete": true, "internal": true,
                 "arguments": {"alternate-exchange": "y"}}],
  "bindings": [{"source": "x", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "a.#",
                "arguments": {}}]
}"""


def test_an_export(tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    path.write_bytes(EXPORT)
    found = read_definitions(path)
    assert [(vhost.name, vhost.other) for vhost in found.vhosts] == [("/", {"limits": []})]
    (queue,) = found.queues
    assert (queue.vhost, queue.name, queue.durable, queue.arguments) == (
        "/",
        "q",
        True,
        {"x-max-priority": 3},
    )
    assert queue.other == {"type": "classic"}
    (exchange,) = found.exchanges
    assert (exchange.type, exchange.durable, exchange.auto_delete, exchange.internal) == (
        "topic",
        False,
        True,
        True,
    )
    (binding,) = found.bindings
    assert (binding.source, binding.destination, binding.destination_type) == ("x", "q", "queue")
    assert binding.routing_key == "a.#"
    assert found.other == {"rabbit_version": "3.10.8", "users": [{"name": "guest"}]}


def test_an_export_of_one_vhost_has_no_vhosts() -> None:
    found = parse_definitions(b'{"queues": [{"name": "q"}]}')
    assert (found.vhosts, found.queues[0].vhost) == ([], "")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "no JSON object"),
        (b"[]", "no JSON object"),
        (b'{"queues": 1}', "queues is no list"),
        (b'{"queues": [1]}', r"queues\[0\] is no object"),
        (b'{"queues": [{"name": "a"}, {"name": 5}]}', r"queues\[1\]: .*name"),
        (b'{"bindings": [{"source": "a"}]}', r"bindings\[0\]: .*destination"),
    ],
)
def test_what_is_no_export(data: bytes, reason: str) -> None:
    with pytest.raises(DefinitionsError, match=reason):
        parse_definitions(data)
