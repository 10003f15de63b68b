"""Topologies are read from YAML and written to it; an error names its place in the document."""

from pathlib import Path

import pytest

from warrenmq.topology import (
    AnonymousQueue,
    Binding,
    DocumentError,
    FanoutExchange,
    Queue,
    TopicExchange,
    Topology,
    bind,
)

DOCUMENT = """\
exchanges:
  orders: {type: topic, alternate_exchange: lost}
  lost: {type: fanout, durable: false, delayed: true}
queues:
  billing:
    message_ttl: 60000
    lazy: true
    arguments: {x-comment: [of, {the: shop}, 5, null]}
  "1": {}
bindings:
  - {exchange: orders, queue: billing, routing_key: "order.#"}
  - {exchange: orders, to_exchange: lost, arguments: {a: true}}
"""
TOPOLOGY = Topology(
    TopicExchange("orders", alternate_exchange="lost"),
    FanoutExchange("lost", durable=False, delayed=True),
    Queue(
        "billing",
        message_ttl=60000,
        lazy=True,
        arguments={"x-comment": ["of", {"the": "shop"}, 5, None]},
    ),
    Queue("1"),
    Binding("orders", "billing", "order.#"),
    Binding("orders", "lost", arguments={"a": True}, destination_type="exchange"),
)


def test_a_document_is_a_topology(tmp_path: Path) -> None:
    assert Topology.from_yaml(DOCUMENT) == TOPOLOGY
    file = tmp_path / "topology.yaml"
    file.write_text(DOCUMENT)
    assert Topology.from_yaml(file) == TOPOLOGY
    assert Topology.from_yaml("") == Topology()
    assert Topology.from_yaml("queues: {q: }") == Topology(Queue("q"))


def test_a_topology_becomes_a_document_without_defaults() -> None:
    assert Topology.from_yaml(TOPOLOGY.to_yaml()) == TOPOLOGY
    queue = AnonymousQueue("anonymous")
    assert Topology(queue, bind(queue).to(FanoutExchange("lost"))).to_yaml() == (
        "queues:\n"
        "  anonymous:\n"
        "    durable: false\n"
        "    auto_delete: true\n"
        "    exclusive: true\n"
        "    master_locator: client-local\n"
        "bindings:\n"
        "- exchange: lost\n"
        "  queue: anonymous\n"
    )
    with pytest.raises(ValueError, match="a queue without a name cannot be written"):
        Topology(Queue()).to_yaml()


def test_merges_count_and_do_not_repeat_keys() -> None:
    text = "queues:\n  a: &a {lazy: true, expires: 1}\n  b: {<<: *a, expires: 2}\n"
    assert Topology.from_yaml(text) == Topology(
        Queue("a", lazy=True, expires=1), Queue("b", lazy=True, expires=2)
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- a", "line 1, column 1: expected a mapping of names"),
        ("queue: {}", "line 1, column 1: there is no 'queue', only exchanges, queues, bindings"),
        ("queues: [a]", "line 1, column 9, queues: expected a mapping of names"),
        ("queues:\n  q: 5", "line 2, column 6, queues.q: expected a mapping of names"),
        ("queues:\n  q: {lazy: true, message_ttl: soon}",
         "line 2, column 32, queues.q: queue 'q': message_ttl is 'soon', not a whole number"),
        ("queues:\n  q: {ttl: 5}", ("line 2, column 7, queues.q: there is no 'ttl', only durable, auto_delete, "
         "arguments, exclusive, message_ttl, expires, max_length, max_length_bytes, overflow, dead_letter_exchange, "
         "dead_letter_routing_key, max_priority, single_active_consumer, lazy, quorum, delivery_limit, master_locator")),
        ("queues:\n  yes: {}", "line 2, column 3, queues: the key 'yes' is no text: put it in quotes"),
        ("queues:\n  a: {}\n  a: {}", "line 3, column 3, queues: 'a' is there twice"),
        ("queues:\n  '': {}", "line 2, column 3, queues.: a name is empty"),
        ("queues:\n  q:\n    arguments:\n      x: [a, 2026-01-02]",
         "line 4, column 14, queues.q.arguments.x[1]: '2026-01-02' is a date in YAML: put it in quotes"),
        ("queues:\n  q: {arguments: {x: 1.50}}",
         "line 2, column 22, queues.q.arguments.x: 1.50 is no whole number: put it in quotes"),
        ("queues:\n  q: {arguments: {x: 0x8000000000000000}}", ("line 2, column 18, queues.q: queue 'q': arguments: "
         "x is 9223372036854775808, which has more than 64 bits")),
        ("queues:\n  q: {lazy: true, arguments: {x-queue-mode: default}}",
         "line 2, column 3, queues.q: queue 'q': lazy and the argument x-queue-mode differ"),
        ("exchanges:\n  e: {type: x-delayed-message}",
         "line 2, column 13, exchanges.e: exchange 'e': the type x-delayed-message needs the argument x-delayed-type"),
        ("bindings: {}", "line 1, column 11, bindings: expected a list of bindings"),
        ("bindings:\n- {exchange: e}", "line 2, column 3, bindings[0]: expected either queue or to_exchange"),
        ("bindings:\n- {queue: q}",
         "line 2, column 3, bindings[0]: a binding needs the name of its exchange and of its destination"),
        ("bindings:\n- {exchange: e, queue: q, key: k}",
         "line 2, column 27, bindings[0]: there is no 'key', only exchange, queue, to_exchange, routing_key, arguments"),
        ("queues: {q: &q {arguments: {x: *q}}}", "it is nested too deeply"),
        ("queues: {q: !!python/object:x.y {}}", "line 1, column 13, queues.q: expected a mapping of names"),
        ("queues: {q: {arguments: {x: !!python/name:os.system a}}}", ("line 1, column 29: could not determine a "
         "constructor for the tag 'tag:yaml.org,2002:python/name:os.system'")),
        ("queues: {q: !!map 5}", "line 1, column 13, queues.q: expected a mapping of names"),
        ("queues: {q: {arguments: {x: !!set {a}}}}",
         "line 1, column 29, queues.q.arguments.x: expected a text, whole number, boolean, list or mapping"),
        ("queues: {q: {arguments: {x: !!int a}}}",
         "line 1, column 29, queues.q.arguments.x: invalid literal for int() with base 10: 'a'"),
        ("queues: {", ("line 1, column 10: while parsing a flow node: expected the node content, but found "
         "'<stream end>'")),
        ("queues: {}\n---\nqueues: {}", ("line 2, column 1: expected a single document in the stream: but found another "
         "document")),
        ("queues: \x00", ("unacceptable character #x0000: special characters are not allowed\n"
         '  in "<unicode string>", position 8')),
    ],
)  # fmt: skip
def test_an_error_names_its_place(text: str, error: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Topology.from_yaml(text)
    assert str(caught.value) == error


def test_an_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("queues: 5")
    with pytest.raises(DocumentError) as caught:
        Topology.from_yaml(file)
    assert str(caught.value) == f"{file}, line 1, column 9, queues: expected a mapping of names"
    assert (caught.value.line, caught.value.column) == (1, 9)
